"""Green, grey, yellow or red: every test of a day, read together."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sgpu.fitted.profile import TrainingProfile
from sgpu.logs.accounting import Accounting
from sgpu.watch.comparisons import (
    MEAN,
    MEASURES,
    POOLED_MEAN,
    Comparison,
    accepted_errors,
    comparisons,
    mean_comparison,
)
from sgpu.watch.effort import Outcome, outcomes
from sgpu.watch.families import adjusted, families_of
from sgpu.watch.group import merged_group
from sgpu.watch.reference import NO_POOL, Pool, history_of, training_reference
from sgpu.watch.sketch import Key, Sketch, sorted_keys
from sgpu.watch.thresholds import Levels, Thresholds
from sgpu.watch.verdict import FLAGGED, Finding, Level, Verdict, level_of_tests


def judge_day(
    today: Sketch,
    history: Sequence[Sketch],
    training: TrainingProfile | None,
    accounting: Accounting,
    thresholds: Thresholds,
    past: Sequence[Accounting] = (),
    pool: Pool = NO_POOL,
) -> Verdict:
    """The verdict on a day of which ``today`` holds all committed rows.

    ``history`` and ``past`` are sketches and accountings of the days before it, ``pool`` the same days as a
    week and what was before it, for groups with few rows a day. The same input gives the same verdict. Tests
    are of all rows together and of each model and route, each kind corrected by itself with half of alpha;
    what could not be tested is a grey finding that says why. The day is grey where nothing is yellow or red
    and the answers of all rows together could not be tested.
    """
    found = [*_intake(today, history, accounting, past, thresholds)]
    if today.rows:
        asked = [*_comparisons(today, history, training, thresholds, pool)]
        found += _tested(asked, thresholds)
    # The rows of a single group are all rows; a route that was tested alone says nothing of the others.
    whole = [one for one in found if one.everything or len(today.groups) == 1 or one.level in FLAGGED]
    return Verdict(level_of_tests(whole), tuple(found))


def _comparisons(
    today: Sketch,
    history: Sequence[Sketch],
    training: TrainingProfile | None,
    thresholds: Thresholds,
    pool: Pool,
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
            yield from (one for one in made if one.measure != MEAN or key is None or len(keys) == 1)
    if training is not None and training.rule is not None:
        yield accepted_errors(total, training.rule, thresholds)


def _tested(asked: Sequence[Comparison], thresholds: Thresholds) -> list[Finding]:
    families = families_of(asked)
    results = outcomes(asked, families, thresholds)
    p = adjusted([results[place].p if place in results else 1.0 for place in range(len(asked))], families)
    return [
        _finding(one, results.get(place), float(p[place]), thresholds.alpha)
        for place, one in enumerate(asked)
    ]


def _finding(one: Comparison, outcome: Outcome | None, p: float, alpha: float) -> Finding:
    title = f"{MEASURES[one.measure]} against {one.reference}"
    model, route = (None, None) if one.key is None else one.key
    known = Finding(
        "grey",
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
    if outcome is None:
        return known
    known = replace(known, rows=outcome.rows, reference_rows=outcome.reference_rows, effect=outcome.effect)
    result = outcome.difference
    if result is None:
        return replace(known, text=f"{title}: not tested, {outcome.remark}")
    remark = f" ({outcome.remark})" if outcome.remark else ""
    return replace(
        known,
        level=level_of(result.effect, one.levels) if p <= alpha else "green",
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
        usual = [known for day in past if (known := day.scoreable_share) is not None]
        levels, rows = thresholds.scoreable_drop, accounting.rows_in
        yield _fall("scoreable", "Scoreable share", share, usual, levels, thresholds.min_days, rows)
        if share < thresholds.least_scoreable:
            text = f"Scoreable share: {share:.3f}, at least {thresholds.least_scoreable} is asked for"
            yield Finding("red", "scoreable", text, everything=True)
    if accounting.file_faults:
        counts = sorted(accounting.file_faults.items())
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
