"""Ten constructed days of logs in all formats, scored by two small models: rows, verdicts, metrics.

The logs are made anew from their seed and compared by hash, so that other logs are told apart from another
night. The models in `given` were fitted with `sgpu fit`, once each.
Both encode in float32 here: in their bfloat16 the last bit of a product decides up to 1e-4 of a probability,
and that bit is not the same on all processors.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from tests.golden.case_run import CaseRun
from tests.golden.night_files import shown, write_night
from tests.golden.stored import write_json

TOLERANCE = 1e-5  # answers are encoded
REPOSITORY = Path(__file__).parents[3]
FIRST, LAST = "2026-11-01", "2026-11-10"
# The fifth day has too many bad rows; on the last many answers make no sense, and one file is cut short.
DAYS: dict[str, tuple[str, ...]] = {
    ",".join(f"2026-11-{day:02d}" for day in (1, 2, 3, 4, 6, 7, 8, 9)): (),
    "2026-11-05": ("--bad", "0.3"),
    LAST: ("--incoherent", "0.6"),
}
LOGS = ("--rows", "150", "--seed", "11", "--bad", "0.06", "--duplicates", "0.04", "--labelled", "0.4")
SCORE = (
    "score", "--logs", "logs", "--model", "model", "--challenger", "challenger", "--out", "out",
    "--from", FIRST, "--date", LAST, "--workers", "0", "--device", "cpu", "--tracking", "none",
    "--labels", "labels.jsonl", "--thresholds", "thresholds.yaml", "--max-bad", "0.15",
    "--max-bad-files", "0.15",
)  # fmt: skip
RED = 5


def produce(run: CaseRun) -> None:
    """All days in one command, red by the last of them."""
    truth = _construct(run.work / "logs")
    shutil.copytree(run.given, run.work, dirs_exist_ok=True)
    for model in ("model", "challenger"):
        _encode_in_float32(run.work / model / "bundle.json")
    write_json(_sha256_by_day(run.work / "logs"), run.out / "logs.json")
    (run.out / "logs_check.txt").write_text(run.sgpu("logs", "check", "logs"), "utf-8")
    printed = run.sgpu(*SCORE, exit_codes=[RED])
    (run.out / "printed.txt").write_text(shown(printed, run.work), "utf-8")
    written = run.work / "out"
    write_night(written, run.out, truth)
    newest = (written / "metrics.prom").read_text("utf-8").splitlines(keepends=True)
    described = (line for line in newest if line.startswith("#"))
    (run.out / "metrics_help.txt").write_text("".join(described), "utf-8")


def _encode_in_float32(bundle: Path) -> None:
    content = json.loads(bundle.read_bytes())
    content["spectrum"]["encoder"]["dtype"] = "float32"
    bundle.write_text(json.dumps(content), "utf-8")


def _construct(logs: Path) -> dict[str, Any]:
    """Write the logs; by day what they were made to come to."""
    truth: dict[str, Any] = {}
    logs.mkdir()
    for number, (days, more) in enumerate(DAYS.items()):
        made = logs.parent / f"made-{number}"
        command = [sys.executable, "-m", "bench.constructed_logs", "--out", str(made), "--days", days]
        subprocess.run([*command, *LOGS, *more], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
        truth |= json.loads((made / "truth.json").read_bytes())["days"]
        for day in (made / "logs").iterdir():
            day.rename(logs / day.name)
    cut = logs / f"dt={LAST}" / "chat-1.jsonl.gz"
    lines = gzip.decompress(cut.read_bytes())
    cut.write_bytes(gzip.compress(lines, compresslevel=0, mtime=0)[:-40])
    return truth


def _sha256_by_day(logs: Path) -> dict[str, str]:
    """Of names and unpacked contents: how a library packs them is not compared."""
    found = {}
    for day in sorted(logs.iterdir()):
        total = hashlib.sha256()
        for file in sorted(day.iterdir()):
            total.update(f"{file.name}\0".encode())
            total.update(_content(file))
        found[day.name] = total.hexdigest()
    return found


def _content(file: Path) -> bytes:
    if file.suffix == ".parquet":
        return repr(pl.read_parquet(file).rows()).encode()
    try:
        return bytes(pa.input_stream(str(file)).read())
    except OSError:
        return b"cut short"
