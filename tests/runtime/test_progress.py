"""What a person is told while a stage works, and when it is done: nothing that is not so."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sgpu.runtime import progress as module
from sgpu.runtime.ledger import Ledger
from sgpu.runtime.progress import Progress
from sgpu.runtime.stage import Outcome
from sgpu.storage.store import Partition, Published


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> tuple[Progress, io.StringIO]:
    """A log, in which every look at the counts makes a line."""
    monkeypatch.setattr(module, "LOG_EVERY_S", 0.0)
    text = io.StringIO()
    return Progress(Console(file=text, width=200)), text


def test_rows_that_an_engine_works_on_are_told_from_its_start(lines: tuple[Progress, io.StringIO]) -> None:
    progress, text = lines
    ledger = Ledger()
    with progress.stage("sample m/d", total=10, done=2) as bar:
        bar.show(ledger.progress())
        ledger.begin([f"q{i}" for i in range(6)])
        bar.show(ledger.progress())
        ledger.end(["q0", "q1"], {"tokens": 80})
        bar.show(ledger.progress())
    starting, working, going = text.getvalue().splitlines()
    assert "2/10  starting" in starting
    assert "2/10  6 rows in work" in working and "starting" not in working
    assert "4/10" in going and "rows/s" in going and "tokens/s" in going
    assert "4 in work" in going and "s left" in going


def test_a_start_that_takes_long_says_where_to_look(
    lines: tuple[Progress, io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, text = lines
    with progress.stage("sample m/d", total=10) as bar:
        bar.show(Ledger().progress())
        monkeypatch.setattr(module, "HINT_AFTER_S", 0.0)
        bar.show(Ledger().progress())
    early, late = text.getvalue().splitlines()
    assert "ray status" not in early and "no worker is ready" in late and "ray status" in late


def outcome(seconds: float, working: float) -> Outcome:
    predictions = Published("predictions", Partition.of(model="m", dataset="d"), "f", 0, (), 60)
    return Outcome("predict", predictions, False, 0, seconds, working, {"rows": 60})


def test_a_finished_stage_says_rows_of_what() -> None:
    assert "60 rows of predictions" in outcome(1.0, 0.0).line()


def test_the_time_of_starts_and_the_rate_of_the_work_do_not_contradict_each_other() -> None:
    assert "35.2 s, 35.1 s of it starting  600.0 rows/s" in outcome(35.2, 0.1).line()
    assert "starting" not in outcome(35.2, 35.0).line()


def test_nothing_that_is_told_steers_the_terminal(lines: tuple[Progress, io.StringIO]) -> None:
    progress, text = lines
    progress.say("a key \x1b]0;PWNED\x07\x1b[2J\x9b31m of\na file")
    assert text.getvalue() == "a key ␛]0;PWNED␇␛[2J⟨U+009B⟩31m of\na file\n"
