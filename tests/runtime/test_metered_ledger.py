"""What the ledger reports, on a recorder that keeps it."""

from __future__ import annotations

from collections import Counter

import pytest

from sgpu.runtime.metered_ledger import METRICS, MeteredLedger

LABELS = {"stage": "sample", "model": "m", "dataset": "d", "judge": "not a label"}


class Kept:
    """A recorder that adds up."""

    def __init__(self) -> None:
        self.values: Counter[str] = Counter()
        self.starting: list[float] = []
        self.labels: list[dict[str, str]] = []

    def add(self, name: str, value: float, **labels: str) -> None:
        self.values[name] += value
        if name == "sgpu_starting":
            self.starting.append(value)
        self.labels.append({"name": name, **labels})


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_a_finished_block_counts_its_rows_tokens_and_failures(kept: Kept) -> None:
    ledger = MeteredLedger(LABELS, recorder=kept)
    ledger.begin(["a", "b", "c"])
    ledger.end(["a", "b", "c"], {"tokens": 70.0, "answers": 20.0}, failed=1)
    assert kept.values["sgpu_rows"] == 3
    assert kept.values["sgpu_tokens"] == 70
    assert kept.values["sgpu_quarantined"] == 1
    assert kept.values["sgpu_items"] == 20
    assert ledger.counts() == {"rows": 3, "tokens": 70, "answers": 20}


def test_a_row_that_runs_alone_is_a_retry_and_one_given_up_is_not(kept: Kept) -> None:
    ledger = MeteredLedger(LABELS, max_lone_deaths=1, recorder=kept)
    ledger.begin(["a"])
    assert ledger.begin(["a"]) == "alone"
    assert ledger.begin_alone("a") == "alone"
    assert ledger.begin_alone("a") == "quarantine"
    assert kept.values["sgpu_retries"] == 1


def test_seconds_are_those_between_begin_and_end(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 10.0, 17.5, 17.5])
    monkeypatch.setattr("sgpu.runtime.metered_ledger.time.monotonic", lambda: next(now))
    ledger = MeteredLedger(LABELS, recorder=kept)
    ledger.begin(["a"])
    ledger.end(["a"], {})
    assert kept.values["sgpu_block_seconds"] == 7.5


def test_nothing_is_reported_for_a_count_of_zero(kept: Kept) -> None:
    MeteredLedger(LABELS, recorder=kept).end(["a"], {"tokens": 0.0})
    assert set(kept.values) == {"sgpu_rows", "sgpu_starting"}


def test_a_stage_is_starting_until_a_worker_takes_its_first_block(kept: Kept) -> None:
    ledger = MeteredLedger(LABELS, recorder=kept)
    assert kept.starting == [1]
    ledger.begin(["a"])
    ledger.begin(["b"])
    assert kept.starting == [1, 0]


def test_every_value_carries_the_labels_that_its_metric_declares(kept: Kept) -> None:
    ledger = MeteredLedger(LABELS, recorder=kept)
    ledger.begin(["a"])
    ledger.begin_alone("a")
    ledger.end(["a"], {"tokens": 1.0, "votes": 1.0}, failed=1)
    declared = {spec.name: {"name", *spec.labels} for spec in METRICS}
    assert {entry["name"]: set(entry) for entry in kept.labels} == declared


def test_ray_accepts_every_declared_metric() -> None:
    from sgpu.runtime.metered_ledger import RayRecorder

    recorder = RayRecorder()
    for spec in METRICS:
        recorder.add(spec.name, 1.0, **dict.fromkeys(spec.labels, "x"))
