"""What later traffic of a fitted model is compared with: its training spectra and held-out probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgpu.errors import DataError, IntegrityError
from sgpu.gp.persistence import read_files, write_files
from sgpu.gp.representation import SCALE, SHARES, size_free
from sgpu.hashing import sha256_of_file

NAME = "profile"  # of its files
DESCRIPTION = f"{NAME}.json"
NUMBERS = ("shares", "sizes", "histogram")
RATES = ("base_rate", "held_out_base_rate")
MOST_SPECTRA = 2000
BINS = 50

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AcceptanceRule:
    """Answers whose probability is ``cut`` or more are accepted.

    Of those, the share that is wrong stays at ``alpha`` or below, with confidence 1 - ``delta`` over the draw
    of the ``n_calibration`` labelled sets that the cut was chosen on. Raises DataError for values out of
    range.
    """

    alpha: float
    delta: float
    cut: float
    n_calibration: int

    def __post_init__(self) -> None:
        inside = 0 < self.alpha < 1 and 0 < self.delta < 1 and 0 <= self.cut <= 1
        if not inside or self.n_calibration < 1:
            raise DataError(
                f"{self}: alpha and delta lie between 0 and 1, cut in [0, 1], n_calibration is 1 or more"
            )

    def accepts(self, probability: Floats) -> NDArray[np.bool_]:
        """Which of the probabilities (Q,) are accepted; NaN is not."""
        return np.asarray(probability >= self.cut)


@dataclass(frozen=True)
class TrainingProfile:
    """What later traffic is compared with: training sets and held-out probabilities, one of each group.

    ``shares`` (S, 20) are of at most 2,000 training sets, drawn by ``seed``, see `shares_of`; ``sizes`` (S,)
    are their numbers of answers. The shares are NaN for sets that the model reads by agreement on content,
    which have no spectrum in later traffic either. ``histogram`` (50,) counts the predicted probabilities of
    the ``held_out_rows``, which were not trained on, see `probability_histogram`. ``base_rate`` is the share
    of right labels among all ``training_rows``, ``held_out_base_rate`` that among the ``held_out_rows``; NaN
    where there are none.
    """

    shares: Floats
    sizes: NDArray[np.int64]
    histogram: NDArray[np.int64]
    training_rows: int
    base_rate: float
    held_out_rows: int
    held_out_base_rate: float
    seed: int
    rule: AcceptanceRule | None = None

    def __post_init__(self) -> None:
        sets = len(self.shares)
        if self.shares.shape != (sets, SHARES) or self.sizes.shape != (sets,):
            raise DataError(
                f"shares have shape {self.shares.shape} and sizes {self.sizes.shape}; "
                f"(S, {SHARES}) and (S,) are needed"
            )
        if self.histogram.shape != (BINS,) or int(self.histogram.sum()) != self.held_out_rows:
            raise DataError(
                f"the histogram of shape {self.histogram.shape} counts {self.histogram.sum()} rows; "
                f"({BINS},) and {self.held_out_rows} are needed"
            )

    @classmethod
    def of(
        cls,
        spectra: Sequence[Floats],
        label: ArrayLike,
        held_out: ArrayLike,
        held_out_label: ArrayLike,
        seed: int,
        rule: AcceptanceRule | None = None,
    ) -> TrainingProfile:
        """Return the profile of M training sets with ``label`` (M,) and the spectra, (n,) each, of some.

        ``held_out`` (H,) are the predicted probabilities of rows that were not trained on, with their labels.
        Both spectra and probabilities are of rows that do not depend on each other.
        """
        shares = [shares_of(spectrum[None]) for spectrum in spectra]
        return cls(
            shares=np.concatenate(shares) if shares else np.empty((0, SHARES)),
            sizes=np.array([len(spectrum) for spectrum in spectra], dtype=np.int64),
            histogram=probability_histogram(held_out),
            training_rows=len(np.asarray(label)),
            base_rate=_mean(label),
            held_out_rows=len(np.asarray(held_out)),
            held_out_base_rate=_mean(held_out_label),
            seed=seed,
            rule=rule,
        )

    def save(self, folder: Path) -> str:
        """Write both files, the description last; return the sha256 of the description."""
        facts = {name: value for name, value in asdict(self).items() if name not in NUMBERS}
        for name in RATES:
            facts[name] = None if np.isnan(facts[name]) else facts[name]  # JSON has no NaN
        write_files(folder, NAME, facts, {name: getattr(self, name) for name in NUMBERS})
        return sha256_of_file(folder / DESCRIPTION)

    @classmethod
    def load(cls, folder: Path, digest: str | None = None) -> TrainingProfile:
        """Read what `save` wrote. Raises IntegrityError for changed or broken files.

        ``digest`` is what the description's sha256 has to be.
        """
        content, numbers = read_files(folder, NAME)
        sha256 = sha256_of_file(folder / DESCRIPTION)
        if digest not in (None, sha256):
            raise IntegrityError(
                f"{folder / DESCRIPTION} has sha256 {sha256}, the model was saved with {digest}. "
                "Restore the folder or fit again."
            )
        try:
            facts: dict[str, Any] = {name: numbers[name] for name in NUMBERS}
            facts |= {name: content[name] for name in ("training_rows", "held_out_rows", "seed")}
            facts |= {name: np.nan if content[name] is None else float(content[name]) for name in RATES}
            rule = None if content["rule"] is None else AcceptanceRule(**content["rule"])
            return cls(**facts, rule=rule)
        except (KeyError, TypeError, ValueError, AttributeError, DataError) as error:
            raise IntegrityError(
                f"{folder / DESCRIPTION} describes no profile: {error}. Restore the folder or fit again."
            ) from error


def drawn_rows(rows: int, seed: int) -> NDArray[np.intp]:
    """The places of at most 2,000 of M training sets, ascending: those whose spectra a profile keeps."""
    return np.sort(np.random.default_rng(seed).permutation(rows)[:MOST_SPECTRA])


def shares_of(spectra: Floats) -> Floats:
    """(Q, 20) largest eigenvalues of spectra (Q, N) over N, descending, zeros behind fewer; N of 2 or more.

    What is beyond the 20th is left out, so that a row sums to at most 1. Raises DataError for N below 2.
    """
    return size_free(spectra)[:, 1:] / SCALE


def probability_histogram(probability: ArrayLike) -> NDArray[np.int64]:
    """(50,) counts of probabilities in equal bins of [0, 1]; a bin holds its lower edge, the last also 1.

    Raises DataError for a value outside [0, 1] or NaN.
    """
    values = np.asarray(probability, dtype=np.float64)
    bad = ~((values >= 0) & (values <= 1))
    if bad.any():
        raise DataError(f"probability {values[bad][0]} in row {int(bad.argmax())} is outside [0, 1]")
    return np.bincount(binned(values), minlength=BINS).astype(np.int64)


def binned(values: Floats) -> NDArray[np.int64]:
    """The bin of each value within [0, 1]; 1 belongs to the last."""
    return np.minimum((values * BINS).astype(np.int64), BINS - 1)


def _mean(label: ArrayLike) -> float:
    values = np.asarray(label, dtype=np.float64)
    return float(values.mean()) if len(values) else float("nan")
