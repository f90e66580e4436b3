"""What a day is compared with: the training data, or the days before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sgpu.evaluation.inputs import Floats
from sgpu.fitted.profile import TrainingProfile
from sgpu.seeds import derived_seed
from sgpu.watch.group import Group
from sgpu.watch.sketch import Key, Sketch, gathered_as, merge


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
    found, counts = np.unique(profile.sizes, return_counts=True)
    order = np.random.default_rng(derived_seed(profile.seed, "watch")).permutation(len(profile.shares))
    return Reference(
        "training",
        profile.histogram.astype(np.float64) if profile.held_out_rows else None,
        profile.shares[order],
        dict(zip(found.tolist(), counts.tolist(), strict=True)),
        why="the model's profile holds none",
    )


@dataclass(frozen=True)
class Pool:
    """Past days as two windows: the days that are pooled with today, and the days before those."""

    recent: Sequence[Sketch] = ()
    before: Sequence[Sketch] = ()


NO_POOL = Pool()


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
        judged, seen = _group(self.probabilities, key), _group(self.spectra, key)
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
        judged = _group(self.probabilities, key)
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


def _group(sketch: Sketch | None, key: Key | None) -> Group | None:
    if sketch is None:
        return None
    return sketch.total() if key is None else sketch.groups.get(key, merge([]).total())
