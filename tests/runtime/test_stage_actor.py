"""Who may run beside whom in one actor."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sgpu.errors import UnavailableError, UsageError
from sgpu.runtime.ledger import Ledger
from sgpu.runtime.stage_actor import StageActor, Turns, is_outside
from sgpu.runtime.worker import StageWorker


def test_blocks_run_beside_each_other() -> None:
    turns, both_are_in = Turns(), threading.Barrier(2)

    def block() -> None:
        with turns.together():
            both_are_in.wait(timeout=10)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(block), pool.submit(block)]:
            future.result()


@pytest.mark.parametrize("kind", ["together", "alone"])
def test_nothing_runs_beside_a_block_that_runs_alone(kind: str) -> None:
    turns, other_is_in = Turns(), threading.Event()

    def other() -> None:
        with getattr(turns, kind)():
            other_is_in.set()

    with ThreadPoolExecutor(1) as pool:
        with turns.alone():
            future = pool.submit(other)
            assert not other_is_in.wait(timeout=0.2)
        future.result(timeout=10)
    assert other_is_in.is_set()


def test_a_block_that_fails_gives_its_turn_back() -> None:
    turns = Turns()
    with pytest.raises(ValueError, match="failed"), turns.together():
        raise ValueError("failed")
    with turns.alone():
        pass


SCHEMA = pa.schema([("question_id", pa.string()), ("status", pa.string()), ("error", pa.string())])


class FailsOne(StageWorker):
    """Answers with one failed row of its own making."""

    def __call__(self, batch: pa.Table) -> pa.Table:
        ids = batch["question_id"].to_pylist()
        states = ["failed" if row_id == "b" else "ok" for row_id in ids]
        return pa.table([ids, states, [None] * len(ids)], schema=SCHEMA)

    def counts(self, output: pa.Table) -> dict[str, float]:
        return {"answers": 6.0}


def test_the_ledger_hears_of_rows_counts_and_failures() -> None:
    heard: list[tuple[Any, ...]] = []
    ledger = SimpleNamespace(begin=lambda *_: "together", end=lambda *told: heard.append(told))
    actor = StageActor(FailsOne(), SCHEMA, ledger)
    actor(pa.table({"question_id": ["a", "b", "c"]}))
    assert heard == [(["a", "b", "c"], {"answers": 6.0}, 1)]


class CountsCalls(StageWorker):
    """Refuses blocks that hold the row "r300"; remembers the sizes of all blocks that it was given."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, batch: pa.Table) -> pa.Table:
        self.sizes.append(batch.num_rows)
        ids = batch["question_id"].to_pylist()
        if "r300" in ids:
            raise ValueError("r300 cannot be read")
        return pa.table([ids, ["ok"] * len(ids), [None] * len(ids)], schema=SCHEMA)


def test_one_bad_row_of_512_costs_at_most_19_calls() -> None:
    ledger = Ledger()
    actor = StageActor(CountsCalls(), SCHEMA, ledger)
    ids = [f"r{i}" for i in range(512)]
    output = actor(pa.table({"question_id": ids}))
    assert len(actor._worker.sizes) <= 19  # type: ignore[attr-defined]
    assert output["question_id"].to_pylist() == ids
    failed = output.filter(pc.equal(output["status"], "failed")).to_pylist()
    assert [(row["question_id"], row["error"]) for row in failed] == [
        ("r300", "ValueError: r300 cannot be read")
    ]
    assert ledger.counts()["rows"] == 512 and not ledger.work_done().waiting


@pytest.mark.parametrize(
    ("error", "outside"),
    [
        (UnavailableError("busy"), True),
        (UsageError("wrong key"), True),
        (MemoryError(), True),
        (ConnectionResetError(), True),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory"), True),
        (ValueError("too long"), False),
        (RuntimeError("index out of range"), False),
    ],
)
def test_what_says_nothing_of_a_row_is_told_from_its_own_faults(error: Exception, outside: bool) -> None:
    assert is_outside(error) is outside
