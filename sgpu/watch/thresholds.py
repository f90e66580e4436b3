"""When a day turns yellow or red: bounds on how large a change is, and on how surely it is none by chance."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from sgpu.study.file import read_tree, validated
from sgpu.study.specs import Strict


class Levels(Strict):
    """Effects at and above ``yellow`` or ``red``."""

    yellow: float = Field(ge=0)
    red: float = Field(ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Levels:
        if self.red < self.yellow:
            raise ValueError(f"red ({self.red}) lies below yellow ({self.yellow}); the larger change is red")
        return self


class ChangeBounds(Strict):
    """How large each kind of change against the past days may be.

    ``psi``: population stability index of the probabilities; 0.1 and 0.25 are the usual bounds, and those of
    ``ks`` and ``mmd`` are what a normal variable gives that moves as far (0.3 and 0.5 of its deviation).
    ``ks``: largest distance of the two distribution functions of the probabilities.
    ``mmd``: maximum mean discrepancy of the spectra, see `sgpu.watch.two_sample_tests`.
    ``sizes``: population stability index of the numbers of answers.
    ``unsafe``: rise of the unsafe share.
    ``mean``: shift of the mean probability, where there are too few rows for the others.
    """

    psi: Levels = Levels(yellow=0.1, red=0.25)
    ks: Levels = Levels(yellow=0.1, red=0.2)
    mmd: Levels = Levels(yellow=0.1, red=0.2)
    sizes: Levels = Levels(yellow=0.1, red=0.25)
    unsafe: Levels = Levels(yellow=0.05, red=0.1)
    mean: Levels = Levels(yellow=0.05, red=0.1)


class TrainingBounds(ChangeBounds):
    """Against the training data: wider, because traffic differs from it for good."""

    psi: Levels = Levels(yellow=0.25, red=1.0)
    ks: Levels = Levels(yellow=0.2, red=0.4)
    mmd: Levels = Levels(yellow=0.2, red=0.4)
    sizes: Levels = Levels(yellow=1.0, red=5.0)
    mean: Levels = Levels(yellow=0.15, red=0.3)


class Thresholds(Strict):
    """A change turns a day yellow or red where its effect reaches the bound AND it is no chance.

    No chance: its p-value, adjusted by Holm over all tests of its family, is at most ``alpha``. The tests of
    all rows are one family, those of single models and routes the other, and they share ``alpha`` equally; a
    day on which nothing changed is therefore called out with at most that probability. The effect is needed
    as well because with many rows every difference is significant.
    """

    alpha: float = Field(default=0.01, gt=0, lt=1)
    history: ChangeBounds = ChangeBounds()
    training: TrainingBounds = TrainingBounds()
    # Errors of accepted answers above the share that the model's rule for accepting promises.
    accepted_errors: Levels = Levels(yellow=0.02, red=0.05)
    # Fewer rows on either side are not compared, and fewer days are no history.
    min_rows: int = Field(default=200, ge=20, le=1024)
    # With fewer than `min_rows`, the mean alone is compared, of at least so many rows on either side: those
    # of the day, and those of the last `pool_days` days against the `days` days before them.
    min_mean_rows: int = Field(default=20, ge=10)
    pool_days: int = Field(default=7, ge=2)
    min_days: int = Field(default=7, ge=1)
    days: int = Field(default=28, ge=1)
    # Below the median of the past days, as a part of it: of the scoreable share, and of the scored rows.
    scoreable_drop: Levels = Levels(yellow=0.1, red=0.3)
    volume_drop: Levels = Levels(yellow=0.75, red=0.95)
    # The least scoreable share whatever the past; none by default, as most traffic has one answer a request.
    least_scoreable: float = Field(default=0.0, ge=0, le=1)
    mmd_rows: int = Field(default=512, ge=20, le=1024)  # of each side at most, fewer for p-values of many
    seed: int = 0  # of the permutations


def read_thresholds(path: Path | str | None) -> Thresholds:
    """ChangeBounds from a YAML file that names what differs from the defaults; without a file the defaults.

    Raises UsageError naming the file, the key and what is allowed.
    """
    if path is None:
        return Thresholds()
    return validated(Thresholds, read_tree(Path(path), what="thresholds"), f"thresholds {path}")
