"""The classifiers of `sgpu_plus`: agreement on content in, probabilities of right answers out.

One classifier reads a response set, by its mean overlap and from `SHARED_FROM` labels on also by its most
common content word. Another reads each answer, by its own agreement with the others beside that of the set.
Both are `GPClassifier` with the kernel "linear_matern15", which goes on rising where the training data end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from sgpu.agreement import ContentAgreement
from sgpu.errors import DataError, IntegrityError
from sgpu.gp.classifier import GPClassifier, Prediction
from sgpu.gp.heads import predict_in_blocks
from sgpu.gp.persistence import DESCRIPTION
from sgpu.storage.parquet_files import read_arrow, write_arrow
from sgpu.storage.whole import draft_of_file

Floats = NDArray[np.float64]
KERNEL = "linear_matern15"
ANSWERS = "answers"  # folder of the classifier of answers, beside the files of that of sets
SHARED_FROM = 100  # labels; fewer do not tell what the most common word adds
PER_QUESTION = 3  # answers of one question that train
SCALE = 20.0  # of the columns: the scale of spectra, for which the prior of the hyper-parameters is made


class ContentPrediction(NamedTuple):
    """What is said of Q response sets: of the set, the place of the chosen answer, and whether it is right.

    ``chosen`` (Q,) is -1 and ``p_answer`` (Q,) NaN where nothing is known; all of ``p_answer`` is NaN without
    a classifier of answers.
    """

    sets: Prediction
    chosen: NDArray[np.int64]
    p_answer: Floats


@dataclass(frozen=True)
class ContentClassifier:
    """Two classifiers on agreement on content; without votes in the training there is none of answers."""

    sets: GPClassifier
    answers: GPClassifier | None = None

    @classmethod
    def fit(
        cls,
        found: Sequence[ContentAgreement],
        label: ArrayLike,
        votes: Sequence[Sequence[float | None] | None],
        seed: int = 0,
        **settings: Any,
    ) -> ContentClassifier:
        """Fit M response sets with labels (M,), and those of their answers that have votes, M lists of N.

        Three answers of each question train, drawn by the seed. ``settings`` are those of `GPClassifier`.
        Raises DataError for labels that cannot be used, TrainingError if the numerics fail.
        """
        settings = {**settings, "kernel": KERNEL, "spectra": False, "seed": seed}
        shared = len(found) >= SHARED_FROM
        sets = GPClassifier(**settings).fit(set_rows(found, 2 if shared else 1), label)
        rows, right = _drawn_answers(found, votes, seed)
        if len(np.unique(right)) < 2:
            return cls(sets)
        return cls(sets, GPClassifier(**settings).fit(rows, right))

    def predict(self, found: Sequence[ContentAgreement]) -> ContentPrediction:
        """Predict Q response sets whose agreement is known; Q may be 0. DataError for one that is not.

        The numbers of a set do not depend on the sets beside it, to the last bit.
        """
        sets = predict_in_blocks(self.sets, set_rows(found, self.sets.fit_report.features))
        places = [one.chosen for one in found]
        chosen = np.array([-1 if place is None else place for place in places], dtype=np.int64)
        p_answer = np.full(len(found), np.nan)
        if self.answers is not None and len(found):
            rows = chosen_rows(found, self.answers.fit_report.features)
            p_answer = predict_in_blocks(self.answers, rows).probability
        return ContentPrediction(sets, chosen, p_answer)

    def recalibrate(self, found: Sequence[ContentAgreement], label: ArrayLike) -> ContentClassifier:
        """Return these classifiers recalibrated to labels (M,) of M response sets or their chosen answers."""
        sets = self.sets.recalibrate(set_rows(found, self.sets.fit_report.features), label)
        if self.answers is None:
            return ContentClassifier(sets)
        rows = chosen_rows(found, self.answers.fit_report.features)
        return ContentClassifier(sets, self.answers.recalibrate(rows, label))

    def save(self, folder: Path | str) -> None:
        """Write both classifiers, that of sets last."""
        if self.answers is not None:
            self.answers.save(Path(folder) / ANSWERS)
        self.sets.save(folder)

    @classmethod
    def load(cls, folder: Path | str) -> ContentClassifier:
        """Read what `save` wrote. Raises IntegrityError for a changed, broken or foreign folder."""
        sets, beside = GPClassifier.load(folder), Path(folder) / ANSWERS
        if sets.settings.spectra:
            raise IntegrityError(f"{folder} holds a classifier of spectra, not of agreement. Fit again.")
        return cls(sets, GPClassifier.load(beside) if (beside / DESCRIPTION).is_file() else None)


COLUMNS = ("overlap", "shared", "centrality", "support", "label", "votes")


def write_content_rows(
    path: Path,
    found: Sequence[ContentAgreement],
    label: Sequence[float],
    votes: Sequence[Sequence[float | None] | None],
) -> None:
    """Write what `ContentClassifier.fit` takes as an Arrow file; readers see the whole file or none."""
    columns = [*zip(*((one.overlap, one.shared, one.centrality, one.support) for one in found), strict=True)]
    numbers, lists = pa.float64(), pa.list_(pa.float64())
    kinds = [numbers, numbers, lists, lists, numbers, lists]
    arrays = [pa.array(values, kind) for values, kind in zip([*columns, label, votes], kinds, strict=True)]
    table = pa.table(dict(zip(COLUMNS, arrays, strict=True)))
    with draft_of_file(path) as draft:
        write_arrow(str(draft), table.to_batches(), table.schema)


def fit_content_rows(path: Path, settings: Mapping[str, Any], seed: int) -> ContentClassifier:
    """Fit the rows of `write_content_rows`; DataError for a file that is none."""
    try:
        *agreements, label, votes = (column.to_pylist() for column in read_arrow(path, COLUMNS).columns)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DataError(
            f"{path} is not a file of training rows: {error}. Remove it and run again."
        ) from error
    found = [
        ContentAgreement(overlap, shared, np.array(centrality), np.array(support))
        for overlap, shared, centrality, support in zip(*agreements, strict=True)
    ]
    return ContentClassifier.fit(found, label, votes, seed, **settings)


def set_rows(found: Sequence[ContentAgreement], columns: int) -> Floats:
    """Return the rows (Q, ``columns``) of response sets: mean overlap, and shared word if there are two."""
    rows = SCALE * np.array([[one.overlap, one.shared][:columns] for one in found]).reshape(-1, columns)
    if np.isnan(rows).any():
        row = int(np.isnan(rows).any(axis=1).argmax())
        raise DataError(f"response set {row} has fewer than two answers, so nothing is known of agreement")
    return rows


def answer_rows(one: ContentAgreement) -> Floats:
    """Return the rows (N, 4) of the answers of a set: own overlap and shared word, and those of the set."""
    of_set = np.broadcast_to([one.overlap, one.shared], (len(one.centrality), 2))
    return SCALE * np.column_stack([one.centrality, one.support, of_set])


def chosen_rows(found: Sequence[ContentAgreement], columns: int) -> Floats:
    """Return the first ``columns`` of the rows (Q, 4) of the chosen answers."""
    return np.stack([answer_rows(one)[one.chosen or 0, :columns] for one in found])


def _drawn_answers(
    found: Sequence[ContentAgreement], votes: Sequence[Sequence[float | None] | None], seed: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Return rows (K, 4) and votes (K,) of at most three answers of each question that have a vote."""
    draw, rows, right = np.random.default_rng(seed), [np.empty((0, 4))], [np.empty(0)]
    for one, given in zip(found, votes, strict=True):
        vote = np.full(len(one.centrality), np.nan) if given is None else np.array(given, dtype=np.float64)
        known = np.flatnonzero(~np.isnan(vote) & ~np.isnan(one.centrality))
        places = np.sort(draw.permutation(known)[:PER_QUESTION])
        rows.append(answer_rows(one)[places])
        right.append(vote[places])
    return np.concatenate(rows), np.concatenate(right).astype(np.int64)
