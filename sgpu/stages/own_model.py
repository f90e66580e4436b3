"""A model fitted to labelled response sets of any number of answers: classifiers, probabilities, profile.

One's own response sets are read, labelled and split here: what it is fitted to, calibrated and measured on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sgpu.datasets.responses import ImportedResponses, load_responses
from sgpu.encoders import Encoder, load_encoder
from sgpu.encoders.remembered import RememberingEncoder, VectorsInMemory
from sgpu.encoders.spectra import SizedSpectra, drawn_orders, embedded_texts, spectra_by_set_size
from sgpu.errors import DataError
from sgpu.fitted.model import FittedModel
from sgpu.fitted.profile import AcceptanceRule, TrainingProfile, drawn_rows
from sgpu.gp import GPClassifier, Prediction
from sgpu.gp.fitting import TrainingRows
from sgpu.gp.heads import OtherSizes
from sgpu.hashing import order_key
from sgpu.judges.base import JUDGES
from sgpu.judges.labels import judge_rows
from sgpu.no_answer import no_answer
from sgpu.provenance import code_version
from sgpu.stages.fit_rows import Training, too_few
from sgpu.stages.questions import GIVEN_LABELS
from sgpu.study.fit_settings import FitSettings, check_labelling

Floats = NDArray[np.float64]
# Sets that are encoded together, and texts whose vectors are kept for the next use: 200,000 x 384 float32 is
# 300 MB.
SETS_AT_A_TIME = 4096
TEXTS_KEPT = 200_000


@dataclass(frozen=True)
class LabelledSets:
    """Q response sets that have a label (1 right, 0 wrong): their ids, answers, ``label`` (Q,) and ``split``.

    ``split`` (Q,) is "train", "validation" or "test". ``n`` is the most common number of answers, or the one
    that was asked for. ``judge`` says where labels come from, "given" for those of the file. ``left_out``
    counts the rows that are not here, by reason; ``faults`` are the first few that could not be read. Rows of
    one of the ``groups`` (Q,) depend on each other; a row without one is a group of its own.
    """

    ids: list[str]
    answers: list[list[str]]
    label: NDArray[np.int64]
    split: NDArray[np.str_]
    n: int
    judge: str
    left_out: dict[str, int]
    faults: tuple[str, ...]
    source: str
    source_sha256: str
    groups: list[str]

    def part(self, split: str) -> tuple[list[list[str]], NDArray[np.int64]]:
        """The answers and labels of one side of the split."""
        places = np.flatnonzero(self.split == split)
        return [self.answers[row] for row in places], self.label[places]

    def independent(self, split: str, seed: int) -> NDArray[np.intp]:
        """Places within `part` of rows that do not depend on each other: one of each group, by the seed.

        Groups that a file has put in train as well are left out.
        """
        places = np.flatnonzero(self.split == split)
        others = (self.split == "train") & (split != "train")
        trained = {self.groups[i] for i in np.flatnonzero(others)}
        drawn: dict[str, int] = {}
        keys = [order_key("group", seed, self.ids[row]) for row in places]
        for row in sorted(range(len(places)), key=keys.__getitem__):
            drawn.setdefault(self.groups[places[row]], row)
        return np.array(sorted(row for group, row in drawn.items() if group not in trained), dtype=np.intp)

    @property
    def counts(self) -> dict[int, int]:
        """How many sets have how many answers."""
        return dict(sorted(Counter(len(answers) for answers in self.answers).items()))


def read_labelled(
    path: Path,
    *,
    n: int | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    calibration_share: float = 0.0,
    judge: str = "alias",
) -> LabelledSets:
    """Read a file of responses, see `sgpu.datasets.responses`, and label what its judge can label.

    Labels of the file are used where it has any; rows without one are left out then, and counted. Otherwise
    ``judge`` ("alias" or "numeric") compares the answers with the references. The shares are of all rows; a
    file with a column split decides itself, and ``calibration_share`` is then of its training rows if it
    names no validation rows. Raises UsageError for shares out of range or another judge, DataError where
    nothing is labelled.
    """
    check_labelling(judge, test_share, calibration_share)
    of_rest = calibration_share / (1 - test_share)
    read = load_responses(path, n, seed=seed, test_share=test_share, validation_share=of_rest, any_count=True)
    labels = read.labels if read.labels is not None else _judged(read, judge)
    answered = pa.array([no_answer(texts) is None for texts in read.responses["answers"].to_pylist()])
    labelled = pc.and_(labels["label"].is_valid(), answered)
    label = labels["label"].filter(labelled).to_numpy()
    left_out = {
        "without a label": labels["label"].null_count,
        "without an answer": len(labels) - labels["label"].null_count - len(label),
        "not usable": len(read.quarantined),
        "repeated": read.n_duplicates,
    }
    if not len(label):
        raise DataError(
            f"{path}: none of {len(labels)} rows has a label, and no references to make one of. "
            "Give a column `label` (1 right, 0 wrong) or `references`."
        )
    return LabelledSets(
        ids=read.responses["question_id"].filter(labelled).to_pylist(),
        answers=read.responses["answers"].filter(labelled).to_pylist(),
        label=label.astype(np.int64),
        split=np.array(read.questions["split"].filter(labelled).to_pylist()),
        n=read.n,
        judge=GIVEN_LABELS if read.labels is not None else judge,
        left_out=left_out,
        faults=tuple(f"{fault.row}: {fault.reason}" for fault in read.quarantined[:3]),
        source=path.name,
        source_sha256=read.source_sha256,
        groups=read.questions["group"].filter(labelled).to_pylist(),
    )


def _judged(read: ImportedResponses, judge: str) -> pa.Table:
    questions = read.questions.select(["question_id", "question", "references"]).to_pylist()
    lookup = {row["question_id"]: (row["question"], tuple(row["references"] or ())) for row in questions}
    return judge_rows(read.responses, lookup, JUDGES.get(judge)())


class OwnModel:
    """Fits a model to the training rows of labelled sets, and asks it about the others.

    The classifier of sets of ``sets.n`` answers learns from all rows that have as many; rows with more are
    read by a drawn part. The size-free one learns from every row, at each of the sizes that the settings name
    and the row has answers for. Raises DataError where there are too few rows of both classes, or rows that
    no classifier could read.
    """

    def __init__(self, sets: LabelledSets, settings: FitSettings) -> None:
        self.sets, self.settings = sets, settings
        _check_fittable(sets, settings.classifier.other_n)
        loaded = load_encoder(settings.encoder, settings.dtype, settings.device, fixed_batches=True)
        self._encoder = RememberingEncoder(loaded, VectorsInMemory(TEXTS_KEPT))
        self.notes: list[str] = []
        self.model = self._fitted(loaded)

    def predict(self, split: str) -> tuple[Prediction, NDArray[np.int64]]:
        """What the model says of the rows of one side, and their labels."""
        answers, label = self.sets.part(split)
        parts = [self.model.gp.predict(np.empty((0, self.sets.n)))]
        parts += [self.model.of_spectra(self._read(part)) for part in _parts(answers)]
        return Prediction(*(np.concatenate(column) for column in zip(*parts, strict=True))), label

    def with_profile(self, rule: AcceptanceRule | None) -> FittedModel:
        """Return the model with what later traffic is compared with: training sets as it would read them.

        The tests of the watch take rows as independent, so the profile has one training set and one held-out
        probability of each group.
        """
        answers, label = self.sets.part("train")
        seed = self.settings.seed
        trained, kept = (self.sets.independent(split, seed) for split in ("train", "test"))
        spectra: list[Floats] = []
        for part in _parts([answers[row] for row in trained[drawn_rows(len(trained), seed)]]):
            eigenvalues = [np.empty(0)] * len(part)
            for sized in self._read(part).values():
                for row, values in zip(sized.rows.tolist(), sized.spectra, strict=True):
                    eigenvalues[row] = values
            spectra += eigenvalues
        tested, tested_label = self.predict("test")
        profile = TrainingProfile.of(spectra, label, tested.probability[kept], tested_label[kept], seed, rule)
        return replace(self.model, profile=profile)

    def _read(self, answers: Sequence[Sequence[str]]) -> dict[int, SizedSpectra]:
        return spectra_by_set_size(self.model.texts_read(answers), self._encoder)

    def _fitted(self, encoder: Encoder) -> FittedModel:
        sets, spec, seed = self.sets, self.settings.classifier, self.settings.seed
        training = self._training()
        if why := too_few(training.own().y):
            raise DataError(f"{sets.source} cannot be fitted at {sets.n} answers: {why}")

        def fit(rows: TrainingRows) -> GPClassifier:
            classifier = GPClassifier(**spec.of_one_fit(), seed=seed)
            return classifier.fit(rows.x, rows.y, rows.weights, rows.cells)

        others: dict[str, GPClassifier] = {}
        for path, rows in training.others(spec.other_n, seed).items():
            if why := too_few(rows.y):
                self.notes.append(f"{path}: {why}")
            else:
                others[path] = fit(rows)
        return FittedModel(
            gp=fit(training.own()),
            encoder=self.settings.encoder,
            encoder_dtype=encoder.dtype,
            n_answers=sets.n,
            encoder_fingerprint=encoder.fingerprint,
            embed=self.settings.embed,
            provenance=self._provenance(len(training.label)),
            others=OtherSizes.of(others),
        )

    def _training(self) -> Training:
        """Spectra of the training rows at every size; NaN where a row has fewer answers."""
        sets, spec = self.sets, self.settings.classifier
        rows = np.flatnonzero(sets.split == "train").tolist()
        longest = max((len(sets.answers[row]) for row in rows), default=0)
        others = [] if spec.other_n == "none" else [size for size in spec.sizes if size <= longest]
        by_size = {size: np.full((len(rows), size), np.nan) for size in sorted({sets.n, *others})}
        for start in range(0, len(rows), SETS_AT_A_TIME):
            texts = [self._ordered(row) for row in rows[start : start + SETS_AT_A_TIME]]
            subsets = [(size, row) for size in by_size for row, own in enumerate(texts) if len(own) >= size]
            by_count = spectra_by_set_size([texts[row][:size] for size, row in subsets], self._encoder)
            for size, sized in by_count.items():
                by_size[size][[start + subsets[index][1] for index in sized.rows]] = sized.spectra
        return Training(by_size, sets.n, sets.label[rows])

    def _ordered(self, row: int) -> list[str]:
        """The texts of a set in an order drawn by its id, of which parts are the first ones."""
        texts = [text or "" for text in embedded_texts(self.sets.answers[row], self.settings.embed)]
        order = drawn_orders([self.sets.ids[row]], len(texts))[0]
        return [texts[position] for position in order]

    def _provenance(self, rows: int) -> dict[str, object]:
        sets = self.sets
        return {
            "method": "sgpu",
            "source": sets.source,
            "source_sha256": sets.source_sha256,
            "judge": sets.judge,
            "rows": rows,
            "answers": {str(count): number for count, number in sets.counts.items()},
            "classifier": self.settings.classifier.model_dump(mode="json"),
            "seed": self.settings.seed,
            "code_version": code_version(),
        }


def _check_fittable(sets: LabelledSets, other_n: str) -> None:
    """Raise DataError, before anything is encoded, for sets that no classifier can learn from."""
    if why := too_few(sets.label):
        raise DataError(f"{sets.source} cannot be fitted: {why}")
    fewer = {count: rows for count, rows in sets.counts.items() if count < sets.n}
    if other_n == "none" and fewer:
        raise DataError(
            f"{sets.source} has sets of {_listed(sets.counts)}; a classifier of {sets.n} answers alone "
            f"cannot read the {sum(fewer.values())} sets with fewer. Give n = {min(fewer)}, or other_n "
            "size_free."
        )


def _parts(answers: Sequence[Sequence[str]]) -> Iterator[Sequence[Sequence[str]]]:
    for start in range(0, len(answers), SETS_AT_A_TIME):
        yield answers[start : start + SETS_AT_A_TIME]


def _listed(counts: dict[int, int]) -> str:
    shown: Sequence[str] = [f"{count} answers ({rows} rows)" for count, rows in counts.items()]
    return ", ".join(shown[:6]) + (f" and {len(shown) - 6} more counts" if len(shown) > 6 else "")
