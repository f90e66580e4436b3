"""Which classifier answers for sets of n answers: the model's own, one of that size, or one of any size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sgpu.errors import DataError, IntegrityError
from sgpu.gp.classifier import GPClassifier, Prediction
from sgpu.gp.persistence import DESCRIPTION
from sgpu.gp.representation import COLUMNS, Floats, size_free
from sgpu.hashing import sha256_of_file

OWN, SIZE_FREE, HEADS = "own", "size_free", "heads"
OTHERS = (SIZE_FREE, HEADS)  # folders beside the files of a model's own classifier
# Matrix kernels round otherwise with the number of rows, by about 1e-14 in a probability, and those for AMD's
# processors also for the last rows of a block. So rows fill its head, and filler stands behind them.
ROWS_A_BLOCK, FILLER = 256, 64


def predict_in_blocks(classifier: GPClassifier, rows: Floats) -> Prediction:
    """Predict rows (Q, features) in blocks of one shape, filled up.

    So a row's numbers are the same to the last bit whatever rows are with it.
    """
    if not len(rows):
        return classifier.predict(rows)
    blocks = [
        _predict_block(classifier, rows[i : i + ROWS_A_BLOCK]) for i in range(0, len(rows), ROWS_A_BLOCK)
    ]
    return Prediction._make(np.concatenate(part) for part in zip(*blocks, strict=True))


def _predict_block(classifier: GPClassifier, rows: Floats) -> Prediction:
    filler = np.repeat(rows[:1], ROWS_A_BLOCK + FILLER - len(rows), axis=0)
    whole = classifier.predict(np.vstack([rows, filler]))
    return Prediction._make(part[: len(rows)] for part in whole)


@dataclass(frozen=True)
class Head:
    """A classifier by ``name`` ("own", "size_free", "head 5") that reads the spectra of ``n`` answers."""

    name: str
    n: int
    classifier: GPClassifier

    def predict(self, spectra: Floats) -> Prediction:
        """The prediction for spectra (Q, n), see `predict_in_blocks`."""
        return predict_in_blocks(self.classifier, size_free(spectra) if self.name == SIZE_FREE else spectra)


@dataclass(frozen=True)
class OtherSizes:
    """Classifiers beside a model's own: ``by_n`` of spectra of n answers, ``size_free`` of any number.

    Raises DataError for a classifier that was fitted to something else.
    """

    by_n: Mapping[int, GPClassifier] = field(default_factory=dict)
    size_free: GPClassifier | None = None

    def __post_init__(self) -> None:
        for n, classifier in self.by_n.items():
            if (size := classifier.fit_report.features) != n:
                raise DataError(f"the head of {n} answers was fitted to {size} eigenvalues; give its own n")
        if self.size_free is not None and (size := self.size_free.fit_report.features) != COLUMNS:
            raise DataError(
                f"the size-free classifier was fitted to {size} columns; `size_free` spectra have {COLUMNS}"
            )

    @classmethod
    def of(cls, fits: Mapping[str, GPClassifier]) -> OtherSizes:
        """Fits by their place in a bundle."""
        by_n = {int(path.rpartition("/")[2]): gp for path, gp in fits.items() if path != SIZE_FREE}
        return cls(by_n, fits.get(SIZE_FREE))

    def head(self, n: int, own: GPClassifier, own_n: int) -> Head:
        """Who answers for sets of ``n`` answers.

        One of exactly n if there is one, or else the size-free one, or else the largest that is smaller,
        which reads so many of the answers. Raises DataError if there is none.
        """
        heads = {own_n: Head(OWN, own_n, own)} | {
            size: Head(f"head {size}", size, classifier) for size, classifier in self.by_n.items()
        }
        if n in heads:
            return heads[n]
        if self.size_free is not None and n >= 2:
            return Head(SIZE_FREE, n, self.size_free)
        smaller = [size for size in heads if size < n]
        if not smaller:
            least = min(heads) if self.size_free is None else 2
            remedy = "" if self.size_free else ", or fit a model with classifier.other_n: size_free"
            raise DataError(
                f"{n} answers; the model was fitted to N = {own_n} and has nothing for fewer "
                f"than {least}. Sample as many{remedy}."
            )
        return heads[max(smaller)]

    def save(self, folder: Path) -> dict[str, str]:
        """Write every classifier to a folder of its own; the sha256 of each description by its path."""
        named = {f"{HEADS}/{n}": classifier for n, classifier in sorted(self.by_n.items())}
        if self.size_free is not None:
            named[SIZE_FREE] = self.size_free
        for path, classifier in named.items():
            classifier.save(folder / path)
        return {path: sha256_of_file(folder / path / DESCRIPTION) for path in named}

    @classmethod
    def load(cls, folder: Path, written: Any) -> OtherSizes:
        """Read what `save` wrote. Raises IntegrityError for a changed or broken folder."""
        loaded: dict[str, GPClassifier] = {}
        for path, digest in dict(written).items():
            parent, _, size = path.rpartition("/")
            if path != SIZE_FREE and not (parent == HEADS and size.isdecimal()):
                raise IntegrityError(f"{folder} names {path!r}, which is no classifier of other sizes")
            loaded[path] = GPClassifier.load(folder / path)
            if sha256_of_file(folder / path / DESCRIPTION) != digest:
                raise IntegrityError(f"{folder / path} is not the classifier that was saved. Restore it.")
        return cls.of(loaded)
