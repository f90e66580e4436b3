"""The day by model and route, beside the past days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sgpu.evaluation.inputs import Floats
from sgpu.fitted.profile import BINS
from sgpu.report.daily.findings import name_of
from sgpu.watch.group import Group, merged_group
from sgpu.watch.sketch import Key, Sketch, sorted_keys
from sgpu.watch.verdict import Level, Verdict, level_of_tests


@dataclass(frozen=True)
class GroupRow:
    """Numbers of a model and route today; ``before`` is the mean probability of the past days."""

    level: Level
    model: str
    route: str
    rows: int
    share: float
    probability: float | None
    before: float | None
    unsafe: float | None
    accepted: float | None
    answers: float | None


def group_rows(today: Sketch, past: Sequence[Sketch], verdict: Verdict) -> list[GroupRow]:
    """Most rows first."""
    keys = sorted(sorted_keys(today.groups), key=lambda key: -today.groups[key].rows)
    return [_row(key, today, past, verdict) for key in keys]


def _row(key: Key, today: Sketch, past: Sequence[Sketch], verdict: Verdict) -> GroupRow:
    group = today.groups[key]
    found = [one for one in verdict.findings if not one.everything and (one.model, one.route) == key]
    return GroupRow(
        level_of_tests(found),
        name_of(key[0], "no model named"),
        name_of(key[1], "no route named"),
        group.rows,
        group.rows / today.rows,
        group.mean_probability,
        mean_probability([sketch.groups[key] for sketch in past if key in sketch.groups]),
        group.unsafe_share,
        group.share("accepted", "decided"),
        sum(n * count for n, count in group.sizes.items()) / group.rows if group.rows else None,
    )


def mean_probability(groups: Sequence[Group]) -> float | None:
    """Over all rows of these groups."""
    rows = sum(group.rows for group in groups)
    return sum((group.mean_probability or 0.0) * group.rows for group in groups) / rows if rows else None


def same_model(today: Sketch, past: Sequence[Sketch]) -> list[Sketch]:
    """The past days whose probabilities are of today's model."""
    return [sketch for sketch in past if sketch.rows and sketch.scorers <= today.scorers]


def histogram(sketches: Sequence[Sketch]) -> Floats:
    """(BINS,) rows by probability of all of them."""
    counts = np.zeros(BINS)
    for sketch in sketches:
        for group in sketch.groups.values():
            counts += group.histogram
    return counts


def labelled(sketches: Sequence[Sketch]) -> Group:
    """All labelled rows of these days as one group."""
    return merged_group(
        group for sketch in sketches for group in sketch.groups.values() if group.counts["labelled"]
    )
