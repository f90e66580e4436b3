"""Which tests a day is put to: each measure of each model and route against each reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom

from sgpu.evaluation.inputs import Floats
from sgpu.fitted.profile import AcceptanceRule
from sgpu.seeds import derived_seed
from sgpu.watch.difference import Difference
from sgpu.watch.group import Group
from sgpu.watch.kolmogorov_smirnov import compare_distributions
from sgpu.watch.mean_shift import Means
from sgpu.watch.mmd import Samples
from sgpu.watch.reference import Reference
from sgpu.watch.rise import compare_shares
from sgpu.watch.sketch import Key
from sgpu.watch.stability_index import compare_counts
from sgpu.watch.thresholds import Levels, Thresholds

PSI, KS, MMD, SIZES, UNSAFE = "psi", "ks", "mmd", "sizes", "unsafe"
MEAN, POOLED_MEAN = "mean", "pooled_mean"
ACCEPTED_ERRORS = "accepted_errors"
MEASURES: Mapping[str, str] = {
    PSI: "Probabilities, PSI",
    KS: "Probabilities, KS",
    MMD: "Spectra, MMD",
    SIZES: "Answers a request, PSI",
    UNSAFE: "Unsafe share, rise",
    MEAN: "Mean probability, shift",
    POOLED_MEAN: "Mean probability of several days, shift",
    ACCEPTED_ERRORS: "Errors of accepted answers, excess",
}
# Where one of these was possible, the answers were tested: number of answers and unsafe share say less.
OF_ANSWERS = frozenset({PSI, KS, MMD, MEAN, POOLED_MEAN})
Run = Callable[[], Difference]


@dataclass(frozen=True)
class Comparison:
    """One test that is or is not possible; where ``run`` is None, ``why`` says why not.

    Spectra and means come as data: `sgpu.watch.effort` decides how many permutations they get.
    """

    key: Key | None  # None: all rows
    measure: str
    reference: str
    levels: Levels
    rows: int
    reference_rows: int
    run: Run | Samples | Means | None = None
    why: str = ""


def comparisons(
    key: Key | None, group: Group, reference: Reference, thresholds: Thresholds
) -> Iterator[Comparison]:
    """What of a group can be compared with a reference, and what not."""
    bounds = thresholds.training if reference.name == "training" else thresholds.history
    possible: tuple[tuple[str, int, int, Run | Samples | None], ...] = (
        (PSI, group.rows, _sum(reference.histogram), _histograms(compare_counts, group, reference)),
        (KS, group.rows, _sum(reference.histogram), _histograms(compare_distributions, group, reference)),
        (MMD, len(group.sample), _length(reference.shares), _spectra(key, group, reference, thresholds.seed)),
        (SIZES, group.rows, sum((reference.sizes or {}).values()), _sizes(group, reference)),
        (UNSAFE, group.rows, reference.unsafe[1] if reference.unsafe else 0, _unsafe(group, reference)),
    )
    for measure, rows, before, run in possible:
        made = Comparison(key, measure, reference.name, getattr(bounds, measure), rows, before, run)
        if run is None:
            yield replace(made, why=reference.why)
        elif min(rows, before) < thresholds.min_rows:
            why = f"{rows} rows against {before}, {thresholds.min_rows} are needed"
            yield replace(made, run=None, why=why)
        else:
            yield made
    if reference.histogram is not None and min(group.rows, _sum(reference.histogram)) < thresholds.min_rows:
        yield mean_comparison(MEAN, key, group, reference, thresholds)


def mean_comparison(
    measure: str, key: Key | None, group: Group, reference: Reference, thresholds: Thresholds
) -> Comparison:
    """The shift of the mean, for rows that are too few for the other tests; MEAN or POOLED_MEAN."""
    before, least = reference.histogram, thresholds.min_mean_rows
    rows, reference_rows = group.rows, _sum(before)
    bounds = thresholds.training if reference.name == "training" else thresholds.history
    made = Comparison(key, measure, reference.name, bounds.mean, rows, reference_rows)
    if before is None:
        return replace(made, why=reference.why)
    if min(rows, reference_rows) < least:
        return replace(made, why=f"{rows} rows against {reference_rows}, {least} are needed")
    seed = derived_seed(thresholds.seed, measure, key, reference.name)
    return replace(made, run=Means(group.histogram, before, seed))


def accepted_errors(group: Group, rule: AcceptanceRule, thresholds: Thresholds) -> Comparison:
    """Are more of all accepted and labelled answers wrong than the rule promises? Exact binomial."""
    rows, wrong = group.counts["accepted_labelled"], group.counts["accepted_wrong"]

    def run() -> Difference:
        excess = wrong / rows - rule.alpha
        return Difference(float(wrong), excess, float(binom.sf(wrong - 1, rows, rule.alpha)))

    least = 20
    enough = rows >= least
    why = "" if enough else f"{rows} accepted answers with a label, {least} are needed"
    levels = thresholds.accepted_errors
    return Comparison(
        None, ACCEPTED_ERRORS, "rule", levels, rows, rule.n_calibration, run if enough else None, why
    )


def _histograms(
    test: Callable[[Floats, Floats], Difference], group: Group, reference: Reference
) -> Run | None:
    before = reference.histogram
    return None if before is None else lambda: test(group.histogram, before)


def _spectra(key: Key | None, group: Group, reference: Reference, seed: int) -> Samples | None:
    before = reference.shares
    if before is None:
        return None
    # The order of the samples is that of hashes or of a seed, so that their heads are samples as well.
    return Samples(group.sample.shares, before, derived_seed(seed, "mmd", key, reference.name))


def _sizes(group: Group, reference: Reference) -> Run | None:
    before = reference.sizes
    if before is None:
        return None
    known = sorted({*group.sizes, *before})
    counts = [np.array([side.get(n, 0) for n in known], dtype=np.float64) for side in (group.sizes, before)]
    return lambda: compare_counts(counts[0], counts[1])


def _unsafe(group: Group, reference: Reference) -> Run | None:
    before = reference.unsafe
    return None if before is None else lambda: compare_shares(group.counts["unsafe"], group.rows, *before)


def _sum(values: Floats | None) -> int:
    return 0 if values is None else int(values.sum())


def _length(values: Floats | None) -> int:
    return 0 if values is None else len(values)
