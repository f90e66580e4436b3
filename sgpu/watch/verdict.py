"""Green, grey, yellow or red: what a day is judged to be, and every test of it, read together."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from sgpu.errors import DataError, readable
from sgpu.fitted.profile import TrainingProfile
from sgpu.logs.accounting import Accounting
from sgpu.watch.comparisons import (
    MEAN,
    MEASURES,
    NO_WINDOWS,
    OF_ANSWERS,
    POOLED_MEAN,
    Comparison,
    PastWindows,
    accepted_errors,
    comparisons,
    history_of,
    mean_comparison,
    training_reference,
)
from sgpu.watch.effort import ComparisonResult, adjusted, compare_all, families_of
from sgpu.watch.group import merged_group
from sgpu.watch.sketch import Key, Sketch, sorted_keys
from sgpu.watch.thresholds import Levels, Thresholds

# Grey: not tested. It is never green, and no reason to wake anybody: exit code 0, and no number of a level.
Level = Literal["green", "grey", "yellow", "red"]
LEVELS: tuple[Level, ...] = ("green", "grey", "yellow", "red")
EXIT_CODES: Mapping[Level, int] = {"green": 0, "grey": 0, "yellow": 4, "red": 5}
FLAGGED: tuple[Level, ...] = ("yellow", "red")
NUMBERS: Mapping[Level, int] = {"green": 0, "yellow": 1, "red": 2}


@dataclass(frozen=True)
class Finding:
    """One look at one thing. Where it was not tested it is grey, and numbers are None.

    ``model`` and ``route`` None with ``everything`` means all rows of the day. ``reference`` is "history",
    "training" or "" (no comparison). ``statistic`` is what the p-value is of, ``effect`` how large the
    change is, ``yellow`` and ``red`` the bounds on the effect. ``text`` says it in words.
    """

    level: Level
    measure: str
    text: str
    everything: bool = False
    model: str | None = None
    route: str | None = None
    reference: str = ""
    statistic: float | None = None
    effect: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    yellow: float | None = None
    red: float | None = None
    rows: int | None = None
    reference_rows: int | None = None

    @property
    def tested(self) -> bool:
        return self.p is not None


@dataclass(frozen=True)
class Verdict:
    """The level of a day: the worst of what was found, grey where its answers were not tested."""

    level: Level
    findings: tuple[Finding, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.level]

    @property
    def n_tests(self) -> tuple[int, int]:
        """Return how many tests could be made, and how many there are."""
        tests = [finding for finding in self.findings if finding.measure in MEASURES]
        return sum(test.tested for test in tests), len(tests)

    def to_json(self) -> dict[str, Any]:
        return {"level": self.level, "findings": [asdict(finding) for finding in self.findings]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Verdict:
        """Raises DataError for what `to_json` did not write."""
        with readable("a verdict", "score the day again"):
            findings = tuple(Finding(**finding) for finding in content["findings"])
            level: Level = content["level"]
        if {level, *(finding.level for finding in findings)} - set(LEVELS):
            raise DataError(f"a verdict has a level other than {', '.join(LEVELS)}; score the day again")
        return cls(level, findings)


def worst(levels: Iterable[Level]) -> Level:
    """The worst of them; green if there is none."""
    return max(levels, key=LEVELS.index, default="green")


def level_of_tests(findings: Iterable[Finding]) -> Level:
    """Of findings on the same rows: yellow or red if any is, else green if their answers were tested."""
    seen = list(findings)
    flagged = worst(finding.level for finding in seen if finding.level in FLAGGED)
    tested = any(finding.tested and finding.measure in OF_ANSWERS for finding in seen)
    return flagged if flagged in FLAGGED or tested else "grey"


def judge_day(
    today: Sketch,
    history: Sequence[Sketch],
    training: TrainingProfile | None,
    accounting: Accounting,
    thresholds: Thresholds,
    past: Sequence[Accounting] = (),
    pool: PastWindows = NO_WINDOWS,
) -> Verdict:
    """The verdict on a day of which ``today`` holds all committed rows.

    ``history`` and ``past`` are sketches and accountings of the days before it, ``pool`` the same days as a
    week and what was before it, for groups with few rows a day. The same input gives the same verdict. Tests
    are of all rows together and of each model and route, each kind corrected by itself with half of alpha;
    what could not be tested is a grey finding that says why. The day is grey where nothing is yellow or red
    and the answers of all rows together could not be tested.
    """
    findings = [*_intake(today, history, accounting, past, thresholds)]
    if today.rows:
        tests = [*_comparisons(today, history, training, thresholds, pool)]
        findings += _tested(tests, thresholds)
    # The rows of a single group are all rows; a route that was tested alone says nothing of the others.
    single = len(today.groups) == 1
    whole = [item for item in findings if single or item.everything or item.level in FLAGGED]
    return Verdict(level_of_tests(whole), tuple(findings))


def _comparisons(
    today: Sketch,
    history: Sequence[Sketch],
    training: TrainingProfile | None,
    thresholds: Thresholds,
    pool: PastWindows,
) -> Iterator[Comparison]:
    before, total = history_of(today, history, thresholds.min_days), today.total()
    recent, earlier = history_of(today, pool.recent, 1), history_of(today, pool.before, thresholds.min_days)
    # All rows together, unless they are those of a single group.
    keys: list[Key | None] = [*sorted_keys(today.groups)]
    for key in keys if len(keys) == 1 else [None, *keys]:
        group = total if key is None else today.groups[key]
        yield from comparisons(key, group, before.of(key), thresholds)
        if group.rows < thresholds.min_rows and pool.before:
            days = [group, *recent.groups(key)]
            yield mean_comparison(POOLED_MEAN, key, merged_group(days), earlier.of(key), thresholds)
        if training is not None:
            made = comparisons(key, group, training_reference(training), thresholds)
            # A route's mean is that of its questions, and lies beside that of the training's mix for good.
            yield from (test for test in made if test.measure != MEAN or key is None or len(keys) == 1)
    if training is not None and training.rule is not None:
        yield accepted_errors(total, training.rule, thresholds)


def _tested(tests: Sequence[Comparison], thresholds: Thresholds) -> list[Finding]:
    families = families_of(tests)
    results = compare_all(tests, families, thresholds)
    p = [results[index].difference.p if index in results else 1.0 for index in range(len(tests))]
    p_adjusted = adjusted(p, families)
    return [
        _finding(comparison, results.get(index), float(p_adjusted[index]), thresholds.alpha)
        for index, comparison in enumerate(tests)
    ]


def _finding(comparison: Comparison, outcome: ComparisonResult | None, p: float, alpha: float) -> Finding:
    title = f"{MEASURES[comparison.measure]} against {comparison.reference}"
    model, route = (None, None) if comparison.key is None else comparison.key
    finding = Finding(
        "grey",
        comparison.measure,
        f"{title}: not tested, {comparison.why}",
        everything=comparison.key is None,
        model=model,
        route=route,
        reference=comparison.reference,
        yellow=comparison.levels.yellow,
        red=comparison.levels.red,
        rows=comparison.rows,
        reference_rows=comparison.reference_rows,
    )
    if outcome is None:
        return finding
    result = outcome.difference
    finding = replace(finding, rows=outcome.rows, reference_rows=outcome.reference_rows, effect=result.effect)
    if not outcome.affordable:
        return replace(finding, text=f"{title}: not tested, {outcome.remark}")
    remark = f" ({outcome.remark})" if outcome.remark else ""
    return replace(
        finding,
        level=level_of(result.effect, comparison.levels) if p <= alpha else "green",
        text=f"{title}: {result.effect:.3f}{remark}",
        statistic=result.statistic,
        p=result.p,
        p_adjusted=p,
    )


def _intake(
    today: Sketch,
    history: Sequence[Sketch],
    accounting: Accounting,
    past: Sequence[Accounting],
    thresholds: Thresholds,
) -> Iterator[Finding]:
    """What came in: is it as much as before, and can as much of it be scored?"""
    if not today.rows:
        nothing = "no row was logged" if not accounting.rows_in else "no request could be scored"
        yield Finding("red", "volume", f"Scored requests: {nothing}", everything=True)
    else:
        usual = [float(sketch.rows) for sketch in history if sketch.rows]
        levels, rows = thresholds.volume_drop, today.rows
        yield _fall("volume", "Scored requests", float(rows), usual, levels, thresholds.min_days, rows)
    share = accounting.scoreable_share
    if share is not None:
        usual = [before for day in past if (before := day.scoreable_share) is not None]
        levels, rows = thresholds.scoreable_drop, accounting.rows_in
        yield _fall("scoreable", "Scoreable share", share, usual, levels, thresholds.min_days, rows)
        if share < thresholds.least_scoreable:
            text = f"Scoreable share: {share:.3f}, at least {thresholds.least_scoreable} is asked for"
            yield Finding("red", "scoreable", text, everything=True)
    if accounting.faulty_files:
        counts = sorted(accounting.faulty_files.items())
        faults = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in counts)
        yield Finding("yellow", "files", f"Files that could not be read whole: {faults}", everything=True)


def _fall(
    measure: str, title: str, value: float, usual: Sequence[float], levels: Levels, least: int, rows: int
) -> Finding:
    """How far a value lies below the median of the past days, as a part of it."""
    if len(usual) < least:
        return Finding("grey", measure, f"{title}: too few past days to compare with", everything=True)
    median = statistics.median(usual)
    if median <= 0:
        text = f"{title}: the median of the past days is 0, below which nothing can fall"
        return Finding("grey", measure, text, everything=True, reference="history", rows=rows)
    drop = (median - value) / median
    text = f"{title}: {100 * abs(drop):.1f} % {'below' if drop > 0 else 'above'} the median of the past days"
    return Finding(
        level_of(drop, levels), measure, text, everything=True, reference="history", effect=drop,
        yellow=levels.yellow, red=levels.red, rows=rows,
    )  # fmt: skip


def level_of(effect: float, levels: Levels) -> Level:
    """The level that an effect reaches."""
    return "red" if effect >= levels.red else "yellow" if effect >= levels.yellow else "green"
