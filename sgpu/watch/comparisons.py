"""Which tests a day is put to: each measure of each model and route against each reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sgpu.evaluation.inputs import Floats
from sgpu.fitted.profile import AcceptanceRule, TrainingProfile
from sgpu.hashing import derived_seed
from sgpu.watch.group import Group
from sgpu.watch.sketch import Key, Sketch, gathered_as, merge
from sgpu.watch.thresholds import Levels, Thresholds
from sgpu.watch.two_sample_tests import (
    Means,
    MeasuredDifference,
    Samples,
    compare_counts,
    compare_distributions,
    compare_shares,
)


@dataclass(frozen=True)
class Reference:
    """Rows by probability (50,), shares of spectra (k, 20), rows by number of answers, (unsafe, all) rows.

    None where it is not known; ``why`` says so in words. The first of the spectra are a random sample of all.
    """

    name: str
    histogram: Floats | None = None
    shares: Floats | None = None
    sizes: Mapping[int, int] | None = None
    unsafe: tuple[int, int] | None = None
    why: str = ""


def training_reference(profile: TrainingProfile) -> Reference:
    """The probabilities of its held-out rows and the spectra of its training rows."""
    measured = profile.shares[~np.isnan(profile.shares).any(axis=1)]
    order = np.random.default_rng(derived_seed(profile.seed, "watch")).permutation(len(measured))
    return Reference(
        "training",
        profile.histogram.astype(np.float64) if profile.held_out_rows else None,
        measured[order],
        Counter(profile.sizes.tolist()),
        why="the model's profile holds none",
    )


@dataclass(frozen=True)
class PastWindows:
    """Past days as two windows: the days that are pooled with today, and the days before those."""

    recent: Sequence[Sketch] = ()
    before: Sequence[Sketch] = ()


NO_WINDOWS = PastWindows()


@dataclass(frozen=True)
class History:
    """Past days as one sketch each way, None where there are too few days to compare with.

    Probabilities of another scorer and spectra of another encoder are not compared: ``why`` says how many
    days there are. Routes are gathered as those of the day that they are compared with.
    """

    probabilities: Sketch | None
    spectra: Sketch | None
    why: str

    def of(self, key: Key | None) -> Reference:
        """The rows of a model and route, or of all with None."""
        judged, seen = _group_of(self.probabilities, key), _group_of(self.spectra, key)
        return Reference(
            "history",
            None if judged is None else judged.histogram,
            None if seen is None else seen.sample.shares,
            None if seen is None else seen.sizes,
            None if judged is None else (judged.counts["unsafe"], judged.rows),
            self.why,
        )

    def groups(self, key: Key | None) -> list[Group]:
        """Their rows with the day's scorer, as a group if there are any."""
        judged = _group_of(self.probabilities, key)
        return [] if judged is None else [judged]


def history_of(today: Sketch, days: Sequence[Sketch], least: int) -> History:
    """The past ``days`` that can be compared with ``today``; at least ``least`` of them are needed."""
    same_scorer = [day for day in days if day.rows and day.scorers <= today.scorers]
    same_encoder = [day for day in days if day.rows and day.encoders <= today.encoders]
    spectra = gathered_as(merge(same_encoder), today) if len(same_encoder) >= least else None
    if len(same_scorer) == len(same_encoder):
        probabilities = spectra
    else:
        probabilities = gathered_as(merge(same_scorer), today) if len(same_scorer) >= least else None
    why = (
        f"{len(same_scorer)} past days with this model and {len(same_encoder)} with this encoder, "
        f"{least} are needed"
    )
    return History(probabilities, spectra, why)


def _group_of(sketch: Sketch | None, key: Key | None) -> Group | None:
    if sketch is None:
        return None
    return sketch.total() if key is None else sketch.groups.get(key, merge([]).total())


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
Run = Callable[[], MeasuredDifference]


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
    """Yield what of a group can be compared with a reference, and what cannot for lack of rows or days."""
    bounds = thresholds.training if reference.name == "training" else thresholds.history
    histogram, shares = reference.histogram, reference.shares
    sizes, unsafe = reference.sizes, reference.unsafe
    tests: dict[str, tuple[int, Run | Samples]] = {}
    if histogram is not None:
        tests[PSI] = _rows(histogram), lambda: compare_counts(group.histogram, histogram)
        tests[KS] = _rows(histogram), lambda: compare_distributions(group.histogram, histogram)
    if shares is not None:
        # The order of the samples is that of hashes or of a seed, so that their heads are samples as well.
        seed = derived_seed(thresholds.seed, "mmd", key, reference.name)
        tests[MMD] = len(shares), Samples(group.sample.shares, shares, seed)
    if sizes is not None:
        every = sorted({*group.sizes, *sizes})
        counts = [np.array([of.get(n, 0) for n in every], dtype=np.float64) for of in (group.sizes, sizes)]
        tests[SIZES] = sum(sizes.values()), lambda: compare_counts(*counts)
    if unsafe is not None:
        tests[UNSAFE] = unsafe[1], lambda: compare_shares(group.counts["unsafe"], group.rows, *unsafe)
    # A training profile never has an unsafe share.
    for measure in (PSI, KS, MMD, SIZES) if reference.name == "training" else (PSI, KS, MMD, SIZES, UNSAFE):
        before, run = tests.get(measure, (0, None))
        rows = len(group.sample) if measure == MMD else group.rows
        why = reference.why if run is None else ""
        if run is not None and min(rows, before) < thresholds.min_rows:
            run, why = None, f"{rows} rows against {before}, {thresholds.min_rows} are needed"
        yield Comparison(key, measure, reference.name, getattr(bounds, measure), rows, before, run, why)
    if histogram is not None and min(group.rows, _rows(histogram)) < thresholds.min_rows:
        yield mean_comparison(MEAN, key, group, reference, thresholds)


def mean_comparison(
    measure: str, key: Key | None, group: Group, reference: Reference, thresholds: Thresholds
) -> Comparison:
    """The shift of the mean, for rows that are too few for the other tests; MEAN or POOLED_MEAN."""
    before, least = reference.histogram, thresholds.min_mean_rows
    rows, reference_rows = group.rows, _rows(before)
    bounds = thresholds.training if reference.name == "training" else thresholds.history
    made = Comparison(key, measure, reference.name, bounds.mean, rows, reference_rows)
    if before is None:
        return replace(made, why=reference.why)
    if min(rows, reference_rows) < least:
        return replace(made, why=f"{rows} rows against {reference_rows}, {least} are needed")
    seed = derived_seed(thresholds.seed, measure, key, reference.name)
    return replace(made, run=Means(group.histogram, before, seed))


def accepted_errors(group: Group, rule: AcceptanceRule, thresholds: Thresholds) -> Comparison:
    """Test whether more of the accepted and labelled answers are wrong than the rule promises (binomial)."""
    from scipy.stats import binom

    rows, wrong = group.counts["accepted_labelled"], group.counts["accepted_wrong"]

    def run() -> MeasuredDifference:
        excess = wrong / rows - rule.alpha
        return MeasuredDifference(float(wrong), excess, float(binom.sf(wrong - 1, rows, rule.alpha)))

    least = 20
    enough = rows >= least
    why = "" if enough else f"{rows} accepted answers with a label, {least} are needed"
    levels = thresholds.accepted_errors
    return Comparison(
        None, ACCEPTED_ERRORS, "rule", levels, rows, rule.n_calibration, run if enough else None, why
    )


def _rows(histogram: Floats | None) -> int:
    return 0 if histogram is None else int(histogram.sum())
