"""What the tests of a day share: corrections for many, and permutations where there is something to see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sgpu.evaluation.comparison import holm
from sgpu.evaluation.inputs import Floats
from sgpu.watch.comparisons import Comparison
from sgpu.watch.thresholds import Thresholds
from sgpu.watch.two_sample_tests import ENOUGH, Means, MeasuredDifference, Samples

Family = Sequence[int]


def families_of(tests: Sequence[Comparison]) -> list[Family]:
    """Indexes of the tests that are possible: of all rows, then of single groups; no family is empty.

    A change of all traffic is to be seen however many routes there are, so its few tests do not share a
    correction with thousands of others.
    """
    possible = [index for index, comparison in enumerate(tests) if comparison.run is not None]
    whole = [index for index in possible if tests[index].key is None]
    single = [index for index in possible if tests[index].key is not None]
    return [family for family in (whole, single) if family]


def adjusted(p: Sequence[float], families: Sequence[Family]) -> Floats:
    """Holm's correction within each family, and Bonferroni's over the families; NaN outside of all.

    Rejecting those at most alpha errs anywhere with at most that probability.
    """
    values, results = np.asarray(p, dtype=np.float64), np.full(len(p), np.nan)
    for family in families:
        places = list(family)
        results[places] = np.minimum(1.0, holm(values[places]) * len(families))
    return results


# Each p-value must be able to fall below its part of alpha; twice as many permutations leave room.
SPARE = 2
# `work` of all tests of spectra of a day together: a minute and a half of one core.
MOST_WORK = 3.5e12
# A permutation of n rows takes n^2 products, and shuffling a row as long as this many of them.
SHUFFLED = 800
LEAST_ROWS = 64


@dataclass(frozen=True)
class ComparisonResult:
    """What came of a test; where it was not affordable, ``remark`` says so, and p is 1: it shows nothing.

    ``rows`` and ``reference_rows`` are those that its p-value is of, or its effect where it has none.
    """

    difference: MeasuredDifference
    rows: int
    reference_rows: int
    remark: str = ""
    affordable: bool = True


def compare_all(
    tests: Sequence[Comparison], families: Sequence[Family], thresholds: Thresholds
) -> dict[int, ComparisonResult]:
    """What comes of the tests of ``families``, by index; the same input gives the same results.

    Of spectra the effect is measured first, on up to ``mmd_rows`` of each side. Below its yellow bound a test
    can flag nothing and gets p = 1 without permutations, which is conservative and therefore valid. The
    others share MOST_WORK, those of all rows first: each has as many permutations as the correction asks
    for, on fewer rows where there are many (the p-value of a head of a sample is valid for its statistic, the
    effect remains that of all rows). Where not even LEAST_ROWS are affordable, the largest effects are
    tested.
    """
    results: dict[int, ComparisonResult] = {}
    left = MOST_WORK
    for family in families:
        moved: dict[int, Samples] = {}
        permutations = permutations_for(len(family), thresholds.alpha / len(families))
        for index in family:
            comparison, run = tests[index], tests[index].run
            if isinstance(run, Samples):
                results[index] = measured = _measured(run, thresholds.mmd_rows)
                if measured.difference.effect >= comparison.levels.yellow:
                    moved[index] = run
            elif run is not None:
                difference = (
                    run.compared(permutations, comparison.levels.yellow) if isinstance(run, Means) else run()
                )
                results[index] = ComparisonResult(difference, comparison.rows, comparison.reference_rows)
        left = _permuted(moved, results, permutations, thresholds.mmd_rows, left)
    return results


def permutations_for(tests: int, alpha: float) -> int:
    """So many that one p-value can fall below ``alpha`` after Holm's correction for all ``tests``."""
    return math.ceil(SPARE * tests / alpha)


def work(permutations: int, rows: int) -> float:
    """What permutations of so many ``rows`` of both sides take."""
    return float(permutations) * rows * (rows + SHUFFLED)


def rows_for(samples: Sequence[Samples], permutations: int, most: int, left: float) -> int:
    """How many rows of each side all of them can have of the work that is ``left``; LEAST_ROWS at least."""
    lengths = np.array([pair.lengths(most) for pair in samples])
    for rows in range(most, LEAST_ROWS, -1):
        both = np.minimum(lengths, rows).sum(axis=1).astype(np.float64)
        if permutations * (both * (both + SHUFFLED)).sum() <= left:
            return rows
    return min(most, LEAST_ROWS)


def _measured(samples: Samples, most: int) -> ComparisonResult:
    remark = "below its bounds, so that no permutation was drawn and p is 1"
    return ComparisonResult(samples.compared(most, permutations=0), *samples.lengths(most), remark)


def _permuted(
    moved: Mapping[int, Samples],
    results: dict[int, ComparisonResult],
    permutations: int,
    most: int,
    left: float,
) -> float:
    """Put the result of each into ``results``, the largest effect first; the work that is left then."""
    if not moved:
        return left
    rows = rows_for(list(moved.values()), permutations, most, left)
    for index in sorted(moved, key=lambda index: (-results[index].difference.effect, index)):
        samples, measured = moved[index], results[index]
        effect = measured.difference.effect
        lengths = samples.lengths(rows)
        needed = work(permutations, sum(lengths))
        if needed > left:
            remark = (
                f"the effect is {effect:.3f}, but {permutations:,} permutations of all that moved take too "
                "long, and those that moved further come first; fewer routes or a larger alpha leave room "
                "for it"
            )
            results[index] = replace(measured, remark=remark, affordable=False)
            continue
        tested = samples.compared(rows, permutations)
        same = lengths == (measured.rows, measured.reference_rows)
        remark = "" if same else f"the effect is of {measured.rows} rows against {measured.reference_rows}"
        results[index] = ComparisonResult(tested._replace(effect=effect), *lengths, remark)
        # A test that stopped early has not drawn all of them.
        left -= needed * min(1.0, ENOUGH / tested.p / permutations)
    return left
