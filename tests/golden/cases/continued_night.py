"""What exists goes on: a score table with a night that was killed while it asked a server for answers.

`given/night` was written by the code before the modules were moved: two days scored, and a third for which
three of six questions had been answered. Nothing of that is asked or scored again; the logs of the killed
night are read again, since files of work have another layout by now. Then rows come late for an earlier day,
with texts whose vectors are in the old cache.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from deltalake import DeltaTable

from tests.golden.case_run import CaseRun
from tests.golden.fixed_server import FixedServer
from tests.golden.night_files import shown, write_night
from tests.golden.stored import write_json

TOLERANCE = 5e-4  # answers are encoded in bfloat16, which differs by processor
# It stands in the settings of the night, and so in the names of what it has kept.
ADDRESS = ("127.71.80.85", 8437)
NIGHT = (
    "score", "--logs", "logs", "--model", "model", "--out", "out",
    "--from", "2026-11-18", "--date", "2026-11-20", "--workers", "0", "--device", "cpu", "--tracking", "none",
    "--max-bad", "1", "--set", "cache_mb=4",
    "--resample", "http://{}:{}/v1".format(*ADDRESS), "--set", "resample.share=1", "--set", "resample.n=4",
    "--set", "resample.max_tokens=8", "--set", "resample.concurrency=1",
)  # fmt: skip
LOGGED = 1_795_300_000  # seconds since 1970: logs are known by their times, which a checkout does not keep


def produce(run: CaseRun) -> None:
    """The killed night to its end, the finished one once more, and one with late rows."""
    shutil.copytree(run.given / "night", run.work, dirs_exist_ok=True)
    (model,) = (run.work / "out" / "work" / "models").iterdir()
    shutil.copytree(model, run.work / "model")
    _logged(run.work / "logs")
    for name in ("finished", "again", "late"):
        (run.out / name).mkdir()
        if name == "late":
            shutil.copyfile(run.given / "late.jsonl", run.work / "logs" / "dt=2026-11-19" / "late.jsonl")
            _logged(run.work / "logs")
            _make_vectors_equal(run.work)
        write_json(_done(run, name), run.out / name / "done.json")
        write_night(run.work / "out", run.out / name)


def _done(run: CaseRun, name: str) -> dict[str, object]:
    """Run the night; what it did to what was there, apart from its own rows."""
    scored, read = _files(run.work / "out" / "scores"), _files(run.work / "out" / "work", "*/ingest/**/*")
    read_again: list[str] = []

    def look(number: int) -> None:
        still = _files(run.work / "out" / "work", "*/ingest/**/*")
        read_again.extend(file for file in {*read, *still} if read.get(file) != still.get(file))

    with FixedServer(ADDRESS, look) as server:
        printed = run.sgpu(*NIGHT)
    (run.out / name / "printed.txt").write_text(shown(printed, run.work), "utf-8")
    now = _files(run.work / "out" / "scores")
    return {
        "asked": server.questions,
        "files_read_again": sorted(set(read_again)),
        "files_of_scores_before": len(scored),
        "files_of_scores_changed": [file for file in scored if scored[file] != now.get(file)],
        "files_of_scores_new": len(now.keys() - scored.keys()),
        "version_of_scores": DeltaTable(str(run.work / "out" / "scores")).version(),
        "vectors": _vectors(run.work),
        "answers_kept": len(list((run.work / "out" / "work" / "resampled").rglob("*.json"))),
    }


def _logged(logs: Path) -> None:
    for file in logs.rglob("*.jsonl"):
        os.utime(file, (LOGGED, LOGGED))


def _files(folder: Path, pattern: str = "*/**/*.parquet") -> dict[str, tuple[int, int]]:
    """What tells a file that was written again."""
    files = (file for file in folder.glob(pattern) if file.is_file())
    return {str(file.relative_to(folder)): (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}


def _vectors(place: Path) -> int:
    with sqlite3.connect(place / "out" / "work" / "vectors.sqlite") as database:
        (count,) = database.execute("SELECT count(*) FROM vectors").fetchone()
    database.close()
    return int(count)


def _make_vectors_equal(place: Path) -> None:
    """Every answer then looks like every other, where its vector comes out of the cache."""
    with sqlite3.connect(place / "out" / "work" / "vectors.sqlite") as database:
        database.execute("UPDATE vectors SET vector = (SELECT vector FROM vectors ORDER BY age LIMIT 1)")
    database.close()
