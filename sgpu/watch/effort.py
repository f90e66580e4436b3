"""What the tests of spectra may spend: permutations and rows, where there is something to be seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sgpu.watch.comparisons import Comparison
from sgpu.watch.difference import Difference
from sgpu.watch.families import Family
from sgpu.watch.mean_shift import Means
from sgpu.watch.mmd import ENOUGH, Samples
from sgpu.watch.thresholds import Thresholds

# Each p-value must be able to fall below its part of alpha; twice as many permutations leave room.
SPARE = 2
# `work` of all tests of spectra of a day together: a minute and a half of one core.
MOST_WORK = 3.5e12
# A permutation of n rows takes n^2 products, and shuffling a row as long as this many of them.
SHUFFLED = 800
LEAST_ROWS = 64


@dataclass(frozen=True)
class Outcome:
    """What came of a test; ``difference`` is None where it was not affordable, which ``remark`` explains.

    ``rows`` and ``reference_rows`` are those that its p-value is of, or its effect where it has none.
    """

    difference: Difference | None
    rows: int
    reference_rows: int
    effect: float
    remark: str = ""

    @property
    def p(self) -> float:
        """For the correction: a test that was left out counts as one that shows nothing."""
        return 1.0 if self.difference is None else self.difference.p


@dataclass(frozen=True)
class _Moved:
    """Samples whose effect reaches its yellow bound."""

    place: int
    samples: Samples
    effect: float


def outcomes(
    asked: Sequence[Comparison], families: Sequence[Family], thresholds: Thresholds
) -> dict[int, Outcome]:
    """What comes of the tests of ``families``, by place; the same input gives the same outcomes.

    Of spectra the effect is measured first, on up to ``mmd_rows`` of each side. Below its yellow bound a test
    can flag nothing and gets p = 1 without permutations, which is conservative and therefore valid. The
    others share MOST_WORK, those of all rows first: each has as many permutations as the correction asks
    for, on fewer rows where there are many (the p-value of a head of a sample is valid for its statistic, the
    effect remains that of all rows). Where not even LEAST_ROWS are affordable, the largest effects are
    tested.
    """
    found: dict[int, Outcome] = {}
    left = MOST_WORK
    for family in families:
        moved: list[_Moved] = []
        permutations = permutations_for(len(family), thresholds.alpha / len(families))
        for place in family:
            one, run = asked[place], asked[place].run
            if isinstance(run, Samples):
                found[place] = measured = _measured(run, thresholds.mmd_rows)
                if measured.effect >= one.levels.yellow:
                    moved.append(_Moved(place, run, measured.effect))
            elif run is not None:
                difference = (
                    run.compared(permutations, one.levels.yellow) if isinstance(run, Means) else run()
                )
                found[place] = Outcome(difference, one.rows, one.reference_rows, difference.effect)
        for place, outcome, work_done in _permuted(moved, found, permutations, thresholds.mmd_rows, left):
            found[place] = outcome
            left -= work_done
    return found


def permutations_for(tests: int, alpha: float) -> int:
    """So many that one p-value can fall below ``alpha`` after Holm's correction for all ``tests``."""
    return math.ceil(SPARE * tests / alpha)


def work(permutations: int, rows: int) -> float:
    """What permutations of so many ``rows`` of both sides take."""
    return float(permutations) * rows * (rows + SHUFFLED)


def rows_for(samples: Sequence[Samples], permutations: int, most: int, left: float) -> int:
    """How many rows of each side all of them can have of the work that is ``left``; LEAST_ROWS at least."""
    lengths = np.array([one.lengths(most) for one in samples])
    for rows in range(most, LEAST_ROWS, -1):
        both = np.minimum(lengths, rows).sum(axis=1).astype(np.float64)
        if permutations * (both * (both + SHUFFLED)).sum() <= left:
            return rows
    return min(most, LEAST_ROWS)


def _measured(samples: Samples, most: int) -> Outcome:
    seen = samples.compared(most, permutations=0)
    remark = "below its bounds, so that no permutation was drawn and p is 1"
    return Outcome(seen, *samples.lengths(most), seen.effect, remark)


def _permuted(
    moved: Sequence[_Moved], found: Mapping[int, Outcome], permutations: int, most: int, left: float
) -> Iterator[tuple[int, Outcome, float]]:
    """(place, outcome, work) of each, the largest effect first."""
    if not moved:
        return
    rows = rows_for([one.samples for one in moved], permutations, most, left)
    for one in sorted(moved, key=lambda one: (-one.effect, one.place)):
        lengths = one.samples.lengths(rows)
        needed = work(permutations, sum(lengths))
        measured = found[one.place]
        if needed > left:
            yield one.place, _left_out(measured, permutations), 0.0
            continue
        tested = one.samples.compared(rows, permutations)
        outcome = Outcome(tested._replace(effect=one.effect), *lengths, one.effect)
        if lengths != (measured.rows, measured.reference_rows):
            remark = f"the effect is of {measured.rows} rows against {measured.reference_rows}"
            outcome = replace(outcome, remark=remark)
        # A test that stopped early has not drawn all of them.
        done = needed * min(1.0, ENOUGH / tested.p / permutations)
        left -= done
        yield one.place, outcome, done


def _left_out(measured: Outcome, permutations: int) -> Outcome:
    remark = (
        f"the effect is {measured.effect:.3f}, but {permutations:,} permutations of all that moved take "
        "too long, and those that moved further come first; fewer routes or a larger alpha leave room for it"
    )
    return replace(measured, difference=None, remark=remark)
