"""Two levels of stages whose engines sleep: `python sleeping.py ROOT ADDRESS fixed|elastic`.

Four models sample six data sets; then two judges and an encoder read what was sampled. Every start of an
engine and every call leave a line in ROOT/log: the moment of its end, the pool, the seconds that it took and
the rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sgpu.runtime.progress import Progress
from sgpu.runtime.runner import run_stages
from sgpu.runtime.session import one_ray_session
from sgpu.runtime.shelves import Crew, Pace, Site
from sgpu.runtime.stage import Resources, Stage
from sgpu.runtime.worker import StageWorker, hold
from sgpu.storage.store import Partition, Published, Store, fingerprint
from sgpu.storage.tables import LABELS, QUESTIONS

GPUS, BLOCK = 8, 25
MODELS, ROWS = ("m0", "m1", "m2", "m3"), {"d0": 75, "d1": 100, "d2": 150, "d3": 200, "d4": 250, "d5": 300}
# Seconds of an actor for a row, seconds of its start, GPUs of an actor.
SPEED = {
    ("sample", "m0"): (0.043, 7.0, 1.0),
    ("sample", "m1"): (0.053, 7.0, 1.0),
    ("sample", "m2"): (0.082, 7.0, 1.0),
    ("sample", "m3"): (0.096, 7.0, 1.0),
    ("judge", "small"): (0.038, 7.0, 1.0),
    ("judge", "large"): (0.05, 7.0, 2.0),
    ("encode", "encoder"): (0.03, 6.0, 0.25),
}
LEVELS = ([kind for kind in SPEED if kind[0] == "sample"], [kind for kind in SPEED if kind[0] != "sample"])


@dataclass
class SleepingWorker(StageWorker):
    """Sleeps for every row, and once while its engine starts."""

    root: str
    pool: str
    model: str
    row: float
    start: float

    def open(self) -> None:
        hold("engine", lambda: self._sleep(self.start, "start"))

    def __call__(self, batch: pa.Table) -> pa.Table:
        ids = batch["question_id"].to_pylist()
        self._sleep(self.row * len(ids), " ".join(f"{self.model}/{row_id}" for row_id in ids))
        return fill(LABELS.schema, {"question_id": ids, "status": ["ok"] * len(ids)})

    def _sleep(self, seconds: float, what: str) -> None:
        time.sleep(seconds)
        with (Path(self.root) / "log").open("a") as file:
            file.write(f"{time.time():.3f} {self.pool} {seconds:.4f} {what}\n")


def fill(schema: pa.Schema, columns: Mapping[str, list[Any]]) -> pa.Table:
    """Return rows of these columns; the others are null."""
    n = len(columns["question_id"])
    return pa.table([pa.array(columns.get(f.name, [None] * n), f.type) for f in schema], schema)


def questions(store: Store, dataset: str) -> Published:
    """Return the questions of a data set, written first if they are not there."""
    partition = Partition.of(dataset=dataset)
    if (published := store.published("questions", partition)) is None:
        ids = [f"{dataset}-{i:03d}" for i in range(ROWS[dataset])]
        texts = {"question_id": ids, "question": ids, "split": ["test"] * len(ids)}
        rows = fill(QUESTIONS.schema, {**texts, "position": list(range(len(ids)))})
        published = store.write(QUESTIONS, partition, rows, fingerprint(dataset), {})
    return published


def stage(store: Store, root: Path, kind: tuple[str, str], model: str, dataset: str) -> Stage:
    row, start, gpus = SPEED[kind]
    return Stage(
        name=kind[0],
        version=1,
        table=LABELS,
        partition=Partition.of(model=model, dataset=dataset, judge="-".join(kind)),
        source=questions(store, dataset),
        columns=("question_id", "position"),
        worker=SleepingWorker(str(root), "-".join(kind), model, row, start),
        engine=kind[1],
        resources=Resources(None, 0.1, gpus, BLOCK),
    )


def pace(one: Stage) -> Pace:
    row, start, _ = SPEED[one.name, one.engine]
    return Pace(row / 60, start / 60)


def stages_of(store: Store, root: Path, level: int) -> list[Stage]:
    return [
        stage(store, root, kind, model, dataset)
        for kind in LEVELS[level]
        for model in (MODELS if level else kind[1:])
        for dataset in ROWS
    ]


if __name__ == "__main__":
    folder, address, sizes = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    if sizes == "fixed":  # as if no pool were worth another actor
        Crew.most = property(lambda crew: crew.fewest, lambda crew, most: None)  # type: ignore[assignment]
    tables = Store(folder)
    with one_ray_session(address):
        for number in range(len(LEVELS)):
            todo = stages_of(tables, folder, number)
            for outcome in run_stages(
                tables, todo, Progress(), address, on_pool=print, site=lambda: Site(GPUS, pace)
            ):
                print(f"{time.time():.3f} published {outcome.partition}", flush=True)
