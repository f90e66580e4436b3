"""A model fitted to labelled response sets of any number of answers: classifiers, probabilities, profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sgpu.agreement import ContentAgreement, find_agreement
from sgpu.encoders import Encoder, load_encoder
from sgpu.encoders.remembered import RememberingEncoder, VectorsInMemory
from sgpu.encoders.spectra import drawn_orders, embedded_texts, spectra_by_set_size
from sgpu.errors import DataError
from sgpu.fitted.model import FittedModel
from sgpu.fitted.profile import AcceptanceRule, TrainingProfile, drawn_rows
from sgpu.fitted.result import Result
from sgpu.fitted.spectrum_classifier import SpectrumClassifier
from sgpu.gp import GPClassifier
from sgpu.gp.content import ContentClassifier
from sgpu.gp.fitting import TrainingRows
from sgpu.gp.heads import OtherSizes
from sgpu.provenance import code_version
from sgpu.stages.fit_rows import MIN_ROWS, PLUS, Training, too_few
from sgpu.stages.labelled_sets import LabelledSets
from sgpu.study.fit_settings import FitSettings

Floats = NDArray[np.float64]
Row = TypeVar("Row")
# Sets that are encoded together, and texts whose vectors are kept for the next use: 200,000 x 384 float32 is
# 300 MB.
SETS_AT_A_TIME = 4096
TEXTS_KEPT = 200_000


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

    def predict(self, split: str) -> tuple[Result, NDArray[np.int64]]:
        """Return what the model says of the rows of one side, and their labels."""
        answers, label = self.sets.part(split)
        parts = [
            self.model.predict(part, asked, self._encoder)
            for part, asked in zip(_parts(answers), _parts(self.sets.questions_of(split)), strict=True)
        ]
        return Result.join(parts), label

    def with_profile(self, rule: AcceptanceRule | None) -> FittedModel:
        """Return the model with what later traffic is compared with: training sets as it would read them.

        The tests of the watch take rows as independent, so the profile has one training set and one held-out
        probability of each group.
        """
        (answers, label), questions = self.sets.part("train"), self.sets.questions_of("train")
        seed = self.settings.seed
        trained, kept = (self.sets.independent(split, seed) for split in ("train", "test"))
        spectra: list[Floats] = []
        for rows in _parts(trained[drawn_rows(len(trained), seed)].tolist()):
            spectra += self._read([answers[row] for row in rows], [questions[row] for row in rows])
        tested, tested_label = self.predict("test")
        profile = TrainingProfile.of(spectra, label, tested.probability[kept], tested_label[kept], seed, rule)
        return replace(self.model, profile=profile)

    def _read(self, answers: Sequence[Sequence[str]], questions: Sequence[str | None]) -> list[Floats]:
        """Return the eigenvalues of each set; NaN for each answer of a set that is read by agreement."""
        eigenvalues = [np.full(len(texts), np.nan) for texts in answers]
        asked = enumerate(zip(answers, questions, strict=True))
        rows = [row for row, (texts, question) in asked if self.model.why_no_agreement(texts, question)]
        read = [self.model.set_read(answers[row]) for row in rows]
        for sized in spectra_by_set_size(read, self._encoder).values():
            for place, values in zip(sized.rows.tolist(), sized.spectra, strict=True):
                eigenvalues[rows[place]] = values
        return eigenvalues

    def _fitted(self, encoder: Encoder) -> FittedModel:
        sets, spec, seed = self.sets, self.settings.classifier, self.settings.seed
        content = None if self.settings.method == "sgpu" else self._fit_content()
        self.method = "sgpu" if content is None else PLUS
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
        spectrum = SpectrumClassifier(
            gp=fit(training.own()),
            encoder=self.settings.encoder,
            encoder_dtype=encoder.dtype,
            n_answers=sets.n,
            encoder_fingerprint=encoder.fingerprint,
            others=OtherSizes.of(others),
        )
        return FittedModel(
            spectrum, self._provenance(len(training.label)), self.settings.embed, content=content
        )

    def _fit_content(self) -> ContentClassifier | None:
        """Fit the training rows that agreement on content says something of.

        If they are too few, raise DataError if the method is given, or else note it and return None.
        """
        sets, found, read = self.sets, list[ContentAgreement](), list[int]()
        train = np.flatnonzero(sets.split == "train")
        for row in train.tolist() if sets.questions else []:
            texts, question = embedded_texts(sets.answers[row], self.settings.embed), sets.questions[row]
            if one := find_agreement(texts, question):
                found.append(one)
                read.append(row)
        label = sets.label[read]
        if too_few(label):
            why = (
                f"agreement on content applies to {len(read)} of {len(train)} training rows, {label.sum()} "
                f"of them right; {MIN_ROWS} rows are needed, right and wrong ones. In the others the answer "
                "is drawn from the text in column `question`: put the question alone there"
                if sets.questions
                else "there are no questions to read: give them in column `question`"
            )
            if self.settings.method == PLUS:
                raise DataError(f"{sets.source} cannot be fitted by {PLUS}: {why}, or fit by sgpu.")
            self.notes.append(f"fitted by sgpu, not {PLUS}: {why}")
            return None
        votes = [sets.votes[row] if sets.votes else None for row in read]
        settings = self.settings.classifier.of_agreement()
        return ContentClassifier.fit(found, label, votes, self.settings.seed, **settings)

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
            "method": self.method,
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


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), SETS_AT_A_TIME):
        yield rows[start : start + SETS_AT_A_TIME]


def _listed(counts: dict[int, int]) -> str:
    shown: Sequence[str] = [f"{count} answers ({rows} rows)" for count, rows in counts.items()]
    return ", ".join(shown[:6]) + (f" and {len(shown) - 6} more counts" if len(shown) > 6 else "")
