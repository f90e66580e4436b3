"""Which tests a day is put to: each measure of each model and route against each reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom

from sgpu.evaluation.inputs import Floats
from sgpu.scoring.watch.difference import Difference
from sgpu.scoring.watch.group import Group
from sgpu.scoring.watch.kolmogorov_smirnov import compare_distributions
from sgpu.scoring.watch.mmd import Samples
from sgpu.scoring.watch.reference import Reference
from sgpu.scoring.watch.rise import compare_shares
from sgpu.scoring.watch.sketch import Key
from sgpu.scoring.watch.stability_index import compare_counts
from sgpu.scoring.watch.thresholds import Levels, Thresholds
from sgpu.seeds import derived_seed
from sgpu.training_profile import AcceptanceRule

PSI, KS, MMD, SIZES, UNSAFE = "psi", "ks", "mmd", "sizes", "unsafe"
ACCEPTED_ERRORS = "accepted_errors"
MEASURES: Mapping[str, str] = {
    PSI: "Probabilities, PSI",
    KS: "Probabilities, KS",
    MMD: "Spectra, MMD",
    SIZES: "Answers a request, PSI",
    UNSAFE: "Unsafe share, rise",
    ACCEPTED_ERRORS: "Errors of accepted answers, excess",
}
Run = Callable[[], Difference]


@dataclass(frozen=True)
class Comparison:
    """One test that is or is not possible; where ``run`` is None, ``why`` says why not.

    Spectra come as samples: `sgpu.scoring.watch.effort` decides how many rows and permutations they get.
    """

    key: Key | None  # None: all rows
    measure: str
    reference: str
    levels: Levels
    rows: int
    reference_rows: int
    run: Run | Samples | None = None
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
