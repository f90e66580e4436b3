"""Green, yellow or red: every test of a day, read together."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sgpu.evaluation.holm import holm
from sgpu.scoring.accounting import Accounting
from sgpu.scoring.watch.comparisons import (
    MEASURES,
    MMD,
    Comparison,
    Effort,
    accepted_errors,
    comparisons,
    effort_for,
)
from sgpu.scoring.watch.difference import Difference
from sgpu.scoring.watch.reference import aligned, history_of, training_reference
from sgpu.scoring.watch.sketch import Key, Sketch, sorted_keys
from sgpu.scoring.watch.thresholds import Levels, Thresholds
from sgpu.scoring.watch.verdict import Finding, Level, Verdict, worst
from sgpu.training_profile import TrainingProfile


def judge_day(
    today: Sketch,
    history: Sequence[Sketch],
    training: TrainingProfile | None,
    accounting: Accounting,
    thresholds: Thresholds,
    past: Sequence[Accounting] = (),
) -> Verdict:
    """The verdict on a day of which ``today`` holds all committed rows.

    ``history`` and ``past`` are sketches and accountings of the days before it. The same input gives the same
    verdict. Tests are of all rows together and of each model and route; what could not be tested is a green
    finding that says why.
    """
    found = [*_intake(today, history, accounting, past, thresholds)]
    if today.rows:
        found += _tested([*_comparisons(today, history, training, thresholds)], thresholds)
    return Verdict(worst(finding.level for finding in found), tuple(found))


def _comparisons(
    today: Sketch, history: Sequence[Sketch], training: TrainingProfile | None, thresholds: Thresholds
) -> Iterator[Comparison]:
    ours, before = aligned(today, history_of(today, history, thresholds.min_days))
    total = ours.total()
    # All rows together, unless they are those of a single group.
    keys: list[Key | None] = [*sorted_keys(ours.groups)]
    for key in keys if len(keys) == 1 else [None, *keys]:
        group = total if key is None else ours.groups[key]
        yield from comparisons(key, group, before.of(key), thresholds)
        if training is not None:
            yield from comparisons(key, group, training_reference(training), thresholds)
    if training is not None and training.rule is not None:
        yield accepted_errors(total, training.rule, thresholds)


def _tested(asked: Sequence[Comparison], thresholds: Thresholds) -> list[Finding]:
    effort = effort_for(asked, thresholds)
    results = [None if one.run is None else one.run(effort) for one in asked]
    asked = [_seen(one, effort) for one in asked]
    adjusted = holm([float("nan") if result is None else result.p for result in results])
    return [
        _finding(one, result, p, thresholds.alpha)
        for one, result, p in zip(asked, results, adjusted.tolist(), strict=True)
    ]


def _seen(one: Comparison, effort: Effort) -> Comparison:
    """With the rows that it has really compared."""
    if one.measure != MMD or one.run is None:
        return one
    rows, before = (min(count, effort.rows) for count in (one.rows, one.reference_rows))
    return replace(one, rows=rows, reference_rows=before)


def _finding(one: Comparison, result: Difference | None, p: float, alpha: float) -> Finding:
    title = f"{MEASURES[one.measure]} against {one.reference}"
    model, route = (None, None) if one.key is None else one.key
    known = Finding(
        "green",
        one.measure,
        f"{title}: not tested, {one.why}",
        everything=one.key is None,
        model=model,
        route=route,
        reference=one.reference,
        yellow=one.levels.yellow,
        red=one.levels.red,
        rows=one.rows,
        reference_rows=one.reference_rows,
    )
    if result is None:
        return known
    return replace(
        known,
        level=level_of(result.effect, one.levels) if p <= alpha else "green",
        text=f"{title}: {result.effect:.3f}",
        statistic=result.statistic,
        effect=result.effect,
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
        drop = _drop(float(today.rows), usual, relative=True, least=thresholds.min_days)
        yield _fall("volume", "Scored requests", drop, thresholds.volume_drop, today.rows)
    share = accounting.scoreable_share
    if share is not None:
        usual = [known for day in past if (known := day.scoreable_share) is not None]
        drop = _drop(share, usual, relative=False, least=thresholds.min_days)
        yield _fall("scoreable", "Scoreable share", drop, thresholds.scoreable_drop, accounting.rows_in)
        if share < thresholds.least_scoreable:
            text = f"Scoreable share: {share:.3f}, at least {thresholds.least_scoreable} is asked for"
            yield Finding("red", "scoreable", text, everything=True)
    if accounting.file_faults:
        counts = sorted(accounting.file_faults.items())
        faults = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in counts)
        yield Finding("yellow", "files", f"Files that could not be read whole: {faults}", everything=True)


def _fall(measure: str, title: str, drop: float | None, levels: Levels, rows: int) -> Finding:
    if drop is None:
        return Finding("green", measure, f"{title}: too few past days to compare with", everything=True)
    text = f"{title}: {100 * abs(drop):.1f} % {'below' if drop > 0 else 'above'} the median of the past days"
    return Finding(
        level_of(drop, levels), measure, text, everything=True, reference="history", effect=drop,
        yellow=levels.yellow, red=levels.red, rows=rows,
    )  # fmt: skip


def _drop(value: float, usual: Sequence[float], *, relative: bool, least: int) -> float | None:
    """How far below the median of the past days; None for fewer than ``least``."""
    if len(usual) < least:
        return None
    median = statistics.median(usual)
    return (median - value) / median if relative and median else median - value


def level_of(effect: float, levels: Levels) -> Level:
    """The level that an effect reaches."""
    return "red" if effect >= levels.red else "yellow" if effect >= levels.yellow else "green"
