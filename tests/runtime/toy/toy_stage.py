"""A stage small enough to kill in tests: `python toy_stage.py ROOT [stop-before-commit] [here] [s3://...]`.

Every call of the worker leaves a line in ROOT/calls, so that a test can tell what was computed twice. The
tables are in ROOT too, or in the place of object storage.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.errors import UnavailableError
from sgpu.runtime.progress import Progress
from sgpu.runtime.runner import run_stages
from sgpu.runtime.stage import Outcome, Resources, Stage
from sgpu.runtime.worker import NOT_CONTENT, StageWorker, hold
from sgpu.storage.store import Partition, Store, fingerprint
from sgpu.storage.tables import LABELS, QUESTIONS

ROWS, BLOCK = 40, 5
SOURCE = Partition.of(dataset="toy")
TARGET = Partition.of(model="toy", dataset="toy", judge="toy")
OWN_PROCESS = "here" not in sys.argv  # else the driver's own does the work


class ToyEngine:
    """Leaves a line in ROOT/engine for each start and each end."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tell("opened")

    def close(self) -> None:
        self._tell("closed")

    def _tell(self, what: str) -> None:
        with (self._root / "engine").open("a") as file:
            file.write(f"{what} ")


@dataclass
class ToyWorker(StageWorker):
    root: Path = field(metadata=NOT_CONTENT)
    delay_s: float = field(metadata=NOT_CONTENT)
    raises: str = field(metadata=NOT_CONTENT)
    dies: str = field(metadata=NOT_CONTENT)
    dies_once: str = field(metadata=NOT_CONTENT)

    def open(self) -> None:
        hold("toy engine", lambda: ToyEngine(self.root))

    def __call__(self, batch: pa.Table) -> pa.Table:
        ids = batch["question_id"].to_pylist()
        with (self.root / "calls").open("a") as file:
            file.write(" ".join(ids) + "\n")
        waiting = [os.environ.get(name) for name in ("GOMP_SPINCOUNT", "KMP_BLOCKTIME")]
        (self.root / "process").write_text(f"{os.nice(0)} {' '.join(map(str, waiting))}")
        time.sleep(self.delay_s)
        if bad := set(self.raises.split()) & set(ids):
            raise ValueError(f"{min(bad)} cannot be read")
        down = self.root / "down"  # the rows for which a server is down
        if down.exists() and set(ids) & set(down.read_text().split()):
            raise UnavailableError("no connection to the server")
        if self.dies in ids:
            os._exit(3)
        marker = self.root / "died"
        if self.dies_once in ids and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), 9)
        columns = {
            "question_id": ids,
            "status": ["ok"] * len(ids),
            "label": pc.cast(batch["position"], pa.int8()),
        }
        return pa.table(
            {f.name: pa.array(columns[f.name], f.type) if f.name in columns and f.name != "label"
             else (columns["label"].combine_chunks() if f.name == "label" else pa.nulls(len(ids), f.type))
             for f in LABELS.schema},
            schema=LABELS.schema,
        )  # fmt: skip

    def counts(self, output: pa.Table) -> dict[str, float]:
        return {"answers": float(output.num_rows)}


def questions(store: Store) -> None:
    rows = {
        "question_id": [f"q{i:02d}" for i in range(ROWS)],
        "question": ["?"] * ROWS,
        "split": ["test"] * ROWS,
        "position": list(range(ROWS)),
    }
    table = pa.table(
        {f.name: pa.array(rows.get(f.name, [None] * ROWS), f.type) for f in QUESTIONS.schema},
        schema=QUESTIONS.schema,
    )
    store.write(QUESTIONS, SOURCE, table, fingerprint({"toy": 1}), {})


def run(root: Path, kept_in: str = "", tolerated: float = 1.0, **asked: Any) -> Outcome:
    store = Store(kept_in or root)
    return next(run_stages(store, [stage(store, root, **asked)], Progress(), tolerated=tolerated))


def stage(
    store: Store,
    root: Path,
    delay_s: float = 0.0,
    raises: str = "",
    dies: str = "",
    dies_once: str = "",
    version: int = 1,
    calls: int = 1,
    target: Partition = TARGET,
) -> Stage:
    if store.published("questions", SOURCE) is None:
        questions(store)
    return Stage(
        name="toy",
        version=version,
        table=LABELS,
        partition=target,
        source=store.require("questions", SOURCE),
        columns=("question_id", "position"),
        worker=ToyWorker(root, delay_s, raises, dies, dies_once),
        resources=Resources(block_rows=BLOCK, calls=calls, own_process=OWN_PROCESS),
    )  # fmt: skip


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if "stop-before-commit" in sys.argv:
        questions(Store(folder))
        Store.publish = lambda *_: os.kill(os.getpid(), 9)  # type: ignore[method-assign,assignment,misc]
    places = [word for word in sys.argv if "://" in word]
    print(run(folder, delay_s=0.5, kept_in="".join(places)).line())
