"""What came of the days; what a worker raises becomes one sentence with a remedy."""

from __future__ import annotations

import io
from datetime import date, timedelta
from typing import Any

import pytest
from rich.console import Console

from sgpu.logs.accounting import Accounting
from sgpu.scoring.outcome import DayResult, exit_code, show_outcome

DAY = date(2026, 11, 20)


def day(back: int = 0, status: Any = "committed", level: Any = "green", **other: Any) -> DayResult:
    return DayResult(DAY - timedelta(days=back), status, level=level, **other)


def shown(*results: DayResult) -> str:
    stream = io.StringIO()
    show_outcome(results, DAY, Console(file=stream))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (day(), 0),
        (day(level="yellow"), 4),
        (day(level="red"), 5),
        (day(level="red", too_bad=True), 5),
        (day(level="yellow", too_bad=True), 3),
        (day(status="failed", level=None), 1),
    ],
)
def test_a_day_has_the_documented_code(result: DayResult, code: int) -> None:
    assert result.exit_code == code


def test_the_worst_day_that_was_written_counts() -> None:
    assert exit_code([day(1, level="red"), day(level="yellow")], DAY) == 5
    assert exit_code([day(1, level="yellow"), day(too_bad=True)], DAY) == 3
    assert exit_code([day(1, level="red"), day(too_bad=True)], DAY) == 5
    assert exit_code([day(2, "failed", None), day(1, level="red"), day(too_bad=True)], DAY) == 1


def test_what_the_exit_code_hides_is_told_with_its_days() -> None:
    text = shown(day(2, level="yellow"), day(1, level="red", too_bad=True), day(too_bad=True))
    red, faulty = "red (5): 2026-11-19", "too many faulty rows or files (3): 2026-11-19, 2026-11-20"
    assert f"exit code 5: {red}; {faulty}; yellow (4): 2026-11-18" in text


def test_a_verdict_says_how_many_tests_could_be_made() -> None:
    assert "green, 3 of 131 tests" in shown(day(tests=(3, 131)))


def test_an_earlier_day_that_was_told_before_is_not_told_again() -> None:
    assert exit_code([day(1, "unchanged", "red"), day()], DAY) == 0
    assert exit_code([day(0, "unchanged", "red")], DAY) == 5


def test_the_table_is_whole_in_a_log_file() -> None:
    known = Accounting(
        rows_in=1_234_567, scored_rows=1_000_000, quarantined=234_567, by_reason={"refusal": 234_567}
    )
    text = shown(day(accounting=known, too_bad=True, seconds=12.34), day(1, "no logs", None))
    for part in ("1,234,567", "81.0%", "green, too many faults", "2026-11-19", "no logs", "12.3"):
        assert part in text
