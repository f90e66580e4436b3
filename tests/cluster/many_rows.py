"""Three stages of a trivial worker: `python many_rows.py ROOT ROWS` prints how far memory grew, in MiB.

That is the driver's and the ledger's, from the end of a stage of a few rows on.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

import psutil
import pyarrow as pa

from sgpu.runtime.progress import Progress
from sgpu.runtime.runner import run_stages
from sgpu.runtime.session import one_ray_session
from sgpu.runtime.stage import Resources, Stage
from sgpu.runtime.worker import StageWorker
from sgpu.storage.store import Partition, Store, fingerprint
from sgpu.storage.tables import LABELS, QUESTIONS
from tests.cluster.sleeping import fill


@dataclass
class TrivialWorker(StageWorker):
    def __call__(self, batch: pa.Table) -> pa.Table:
        ids = batch["question_id"].to_pylist()
        return fill(LABELS.schema, {"question_id": ids, "status": ["ok"] * len(ids)})


def write_questions(store: Store, dataset: str, rows: int) -> None:
    def batch(first: int) -> pa.Table:
        numbers = range(first, min(rows, first + 50_000))
        ids = [f"{dataset}-question-{number:012d}" for number in numbers]
        texts = {"question_id": ids, "question": ids, "split": ["test"] * len(ids)}
        return fill(QUESTIONS.schema, {**texts, "position": list(numbers)})

    partition, key = Partition.of(dataset=dataset), fingerprint({"dataset": dataset, "rows": rows})
    files = store.write_shards(QUESTIONS, partition, map(batch, range(0, rows, 50_000)), key)
    store.publish(QUESTIONS, partition, key, {}, files)


def run(store: Store, dataset: str, judge: str) -> None:
    target = Partition.of(model="m", dataset=dataset, judge=judge)
    stage = Stage(
        name="judge", version=1, table=LABELS, partition=target,
        source=store.require("questions", Partition.of(dataset=dataset)),
        columns=("question_id",), worker=TrivialWorker(), resources=Resources(block_rows=2000),
    )  # fmt: skip
    assert next(run_stages(store, [stage], Progress())).rows == stage.rows


def memory() -> float:
    """Return the MiB of this process and of the ledgers, without the pages of the object store."""
    found = [psutil.Process()]
    found += [one for one in found[0].children(recursive=True) if "Ledgers" in " ".join(one.cmdline())]
    return sum(one.memory_full_info().uss for one in found) / 2**20


if __name__ == "__main__":
    tables, peak = Store(sys.argv[1]), 0.0

    def watch() -> None:
        global peak
        while True:
            with suppress(psutil.Error):  # of a process that has just ended
                peak = max(peak, memory())
            time.sleep(0.2)

    write_questions(tables, "few", 4000)
    write_questions(tables, "many", int(sys.argv[2]))
    with one_ray_session():
        run(tables, "few", "0")
        before = memory()
        threading.Thread(target=watch, daemon=True).start()
        for number in range(3):
            run(tables, "many", str(number))
    print(round(peak - before))
