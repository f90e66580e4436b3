"""Stages of one pool under a real local Ray: what happens to one of them costs the others nothing."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from sgpu.errors import GivenUpError
from sgpu.runtime.progress import Progress
from sgpu.runtime.runner import PoolRecord, run_stages
from sgpu.runtime.stage import Outcome
from sgpu.storage.store import Partition, Store

OTHER = Partition.of(model="other", dataset="toy", judge="toy")


def run_two(
    root: Path, toy: ModuleType, told: list[PoolRecord], store: Store | None = None, **asked: str
) -> list[Outcome]:
    """Run two stages over the same rows; what is ``asked`` holds for the second."""
    store = store or Store(root)
    stages = [toy.stage(store, root / "one"), toy.stage(store, root / "two", target=OTHER, **asked)]
    for name in ("one", "two"):
        (root / name).mkdir(exist_ok=True)
    return list(run_stages(store, stages, Progress(), on_pool=told.append))


def statuses(outcome: Outcome) -> dict[str, str]:
    rows = outcome.published.read(["question_id", "status"]).to_pylist()
    assert max(Counter(row["question_id"] for row in rows).values()) == 1
    return {row["question_id"]: row["status"] for row in rows}


def test_stages_of_a_pool_are_one_job_of_the_same_actors(tmp_path: Path, toy: ModuleType) -> None:
    told: list[PoolRecord] = []
    first, second = run_two(tmp_path, toy, told)
    assert [(one.stages, one.rows, one.starts, one.jobs) for one in told] == [(2, 2 * toy.ROWS, 1, 1)]
    assert statuses(first) == statuses(second) == {f"q{i:02d}": "ok" for i in range(toy.ROWS)}
    assert (first.published.partition, second.published.partition) == (toy.TARGET, OTHER)
    assert first.counts["answers"] == second.counts["answers"] == toy.ROWS


@pytest.mark.parametrize("own_process", [True, False])
def test_an_engine_is_opened_once_for_all_stages_and_closed_at_the_end(
    tmp_path: Path, toy: ModuleType, monkeypatch: pytest.MonkeyPatch, own_process: bool
) -> None:
    monkeypatch.setattr(toy, "OWN_PROCESS", own_process)
    run_two(tmp_path, toy, [])
    said, closed = tmp_path / "one" / "engine", "opened closed "
    for _ in range(300):  # an actor ends when Ray has let go of it
        if said.read_text() == closed:
            break
        time.sleep(0.1)
    assert said.read_text() == closed and not (tmp_path / "two" / "engine").exists()


def test_a_row_that_kills_an_actor_of_two_stages_is_quarantined_in_its_own(
    tmp_path: Path, toy: ModuleType
) -> None:
    first, second = run_two(tmp_path, toy, [], dies="q23")
    assert set(statuses(first).values()) == {"ok"}
    found = statuses(second)
    assert found.pop("q23") == "failed" and set(found.values()) == {"ok"} and len(found) == toy.ROWS - 1


def test_an_actor_that_is_killed_with_two_cells_in_its_pool_costs_neither_a_row(
    tmp_path: Path, toy: ModuleType
) -> None:
    told: list[PoolRecord] = []
    first, second = run_two(tmp_path, toy, told, dies_once="q23")
    assert (tmp_path / "two" / "died").exists() and told[0].starts == 2
    assert set(statuses(first).values()) == set(statuses(second).values()) == {"ok"}
    assert len(statuses(first)) == len(statuses(second)) == toy.ROWS


@pytest.mark.parametrize("own_process", [True, False])
def test_a_stage_that_gives_up_is_told_when_the_others_are_published(
    tmp_path: Path, toy: ModuleType, monkeypatch: pytest.MonkeyPatch, own_process: bool
) -> None:
    monkeypatch.setattr(toy, "OWN_PROCESS", own_process)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "down").write_text(" ".join(f"q{i:02d}" for i in range(toy.ROWS)))
    store = Store(tmp_path)
    with pytest.raises(GivenUpError, match=r"other/toy/toy.*gave up after 20"):
        run_two(tmp_path, toy, [], store)
    assert store.require("labels", toy.TARGET).rows == toy.ROWS
    assert store.published("labels", OTHER) is None
    (tmp_path / "two" / "down").unlink()
    (tmp_path / "one" / "calls").unlink()
    first, second = run_two(tmp_path, toy, [])
    assert first.reused and set(statuses(second).values()) == {"ok"}
    assert not (tmp_path / "one" / "calls").exists()


def test_what_is_finished_of_each_stage_is_not_done_again(tmp_path: Path, toy: ModuleType) -> None:
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "down").write_text("q03 q29")
    run_two(tmp_path, toy, [])
    (tmp_path / "two" / "down").unlink()
    (tmp_path / "two" / "calls").unlink()
    first, second = run_two(tmp_path, toy, [])
    assert first.reused and set(statuses(second).values()) == {"ok"}
    assert sorted((tmp_path / "two" / "calls").read_text().split()) == ["q03", "q29"]
