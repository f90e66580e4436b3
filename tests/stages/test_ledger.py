from __future__ import annotations

from sgpu.stages.ledger import Ledger


def test_an_undisturbed_batch_runs_together() -> None:
    ledger = Ledger()
    assert ledger.begin(["a", "b"]) == "together"
    ledger.end(["a", "b"], {"tokens": 7})
    assert ledger.begin(["a", "b"]) == "together"
    assert ledger.counts() == {"rows": 2, "tokens": 7}


def test_a_batch_that_never_ended_runs_row_by_row() -> None:
    ledger = Ledger()
    ledger.begin(["a", "b"])
    assert ledger.begin(["a", "b"]) == "alone"
    assert ledger.begin_alone("a") == "alone"


def test_one_lone_death_is_forgiven_and_the_second_quarantines() -> None:
    ledger = Ledger(max_lone_deaths=2)
    ledger.begin(["a"])
    assert [ledger.begin_alone("a") for _ in range(3)] == ["alone", "alone", "quarantine"]


def test_a_row_that_ended_alone_has_no_death_against_it() -> None:
    ledger = Ledger(max_lone_deaths=1)
    ledger.begin_alone("a")
    ledger.end_alone("a")
    assert ledger.begin_alone("a") == "alone"


def test_rows_of_a_suspect_batch_stay_alone_while_another_row_of_it_kills() -> None:
    ledger = Ledger()
    ledger.begin(["a", "b"])
    ledger.begin(["a", "b"])
    assert ledger.begin(["b"]) == "alone"
