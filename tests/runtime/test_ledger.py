from __future__ import annotations

from sgpu.runtime.ledger import DEAD_ROWS, Ledger


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


def test_a_batch_of_a_node_that_is_gone_runs_together_again() -> None:
    living = {"n1", "n2"}
    ledger = Ledger(living_nodes=lambda: living)
    assert ledger.begin(["a", "b"], "n1") == "together"
    living.remove("n1")
    assert ledger.begin(["a", "b"], "n2") == "together"
    # On a living node a death makes suspects, and a lost node afterwards does not clear them.
    assert ledger.begin(["a", "b"], "n2") == "alone"
    living.clear()
    assert ledger.begin(["a", "b"], "n3") == "alone"


def test_a_row_whose_node_is_gone_has_no_death_against_it() -> None:
    living = {"n1", "n2"}
    ledger = Ledger(max_lone_deaths=1, living_nodes=lambda: living)
    assert ledger.begin_alone("a", "n1") == "alone"
    living.remove("n1")
    assert ledger.begin_alone("a", "n2") == "alone"
    assert ledger.begin_alone("a", "n2") == "quarantine"


def test_after_some_failures_in_a_row_no_further_row_is_begun() -> None:
    ledger = Ledger(give_up_after=3)
    for row in "abc":
        assert ledger.begin_alone(row) == "alone"
        ledger.postpone(row, "down")
    assert ledger.gave_up() and ledger.work_done().waiting == {"a": "down", "b": "down", "c": "down"}
    assert (ledger.begin(["d"]), ledger.begin_alone("d")) == ("stop", "stop")


def test_an_engine_that_dies_of_the_first_rows_is_given_up_unless_a_row_ever_came_through() -> None:
    rows = [f"q{i}" for i in range(DEAD_ROWS)]
    for is_proven in (False, True):
        ledger = Ledger(max_lone_deaths=2, is_proven=is_proven)
        starts = 0
        for row in rows:
            while ledger.begin_alone(row) == "alone":
                starts += 1
        assert ledger.gave_up() is not is_proven and starts == 2 * DEAD_ROWS
    ledger = Ledger(max_lone_deaths=1)
    ledger.begin_alone("q")
    ledger.end_alone("q")
    assert [ledger.begin_alone(row) for row in rows * 2][DEAD_ROWS:] == ["quarantine"] * DEAD_ROWS
    assert not ledger.gave_up()


def test_a_row_that_comes_through_ends_the_row_of_failures() -> None:
    ledger = Ledger(give_up_after=2)
    ledger.postpone("a", "busy")
    ledger.end_alone("b")
    ledger.postpone("c", "busy")
    assert not ledger.gave_up()


def test_a_row_that_came_through_in_the_end_waits_no_longer() -> None:
    ledger = Ledger()
    ledger.postpone("a", "busy")
    ledger.end_alone("a")
    assert ledger.work_done().waiting == {}
