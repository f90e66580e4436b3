"""A model fitted to labelled response sets of any number of answers: classifiers, probabilities, profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sgpu.encoders import Encoder, load_encoder
from sgpu.encoders.features import drawn_orders
from sgpu.encoders.mixed_sizes import SizedSpectra, spectra_by_set_size
from sgpu.encoders.remembered import RememberingEncoder
from sgpu.encoders.texts import Embed, embedded_texts
from sgpu.errors import DataError
from sgpu.fitted.model import FittedModel
from sgpu.fitted.profile import AcceptanceRule, TrainingProfile, drawn_rows
from sgpu.gp import GPClassifier, Prediction
from sgpu.gp.fitting import TrainingRows
from sgpu.gp.heads import SIZE_FREE, OtherSizes
from sgpu.provenance import code_version
from sgpu.stages.fit_rows import too_few
from sgpu.stages.labelled_sets import LabelledSets
from sgpu.stages.subsets import Training
from sgpu.study.specs import ClassifierSpec

Floats = NDArray[np.float64]
# Sets that are encoded together, and texts whose vectors are kept for the next use: 200,000 x 384 float32 is
# 300 MB.
SETS_AT_A_TIME = 4096
TEXTS_KEPT = 200_000


@dataclass(frozen=True)
class FitSettings:
    """What decides a fit beside its rows; see `load_encoder`, `Embed` and `ClassifierSpec`."""

    encoder: str = "all-MiniLM-L6-v2"
    dtype: str = "auto"
    device: str = "auto"
    embed: Embed = "full"
    classifier: ClassifierSpec = field(default_factory=ClassifierSpec)
    seed: int = 0


class OwnModel:
    """Fits a model to the training rows of labelled sets, and asks it about the others.

    The classifier of sets of ``sets.n`` answers learns from all rows that have as many; rows with more are
    read by a drawn part. The size-free one learns from every row, at each of the sizes that the settings name
    and the row has answers for. Raises DataError where there are too few rows of both classes, or rows that
    no classifier could read.
    """

    def __init__(self, sets: LabelledSets, settings: FitSettings) -> None:
        self.sets, self.settings = sets, settings
        _check_counts(sets, settings.classifier.other_n)
        loaded = load_encoder(settings.encoder, settings.dtype, settings.device, fixed_batches=True)
        self._encoder = RememberingEncoder(loaded, TEXTS_KEPT)
        self.notes: list[str] = []
        self.model = self._fitted(loaded)

    def predict(self, split: str) -> tuple[Prediction, NDArray[np.int64]]:
        """What the model says of the rows of one side, and their labels."""
        answers, label = self.sets.part(split)
        parts = [self.model.gp.predict(np.empty((0, self.sets.n)))]
        parts += [self.model.of_spectra(self._read(part)) for part in _parts(answers)]
        return Prediction(*(np.concatenate(column) for column in zip(*parts, strict=True))), label

    def with_profile(self, rule: AcceptanceRule | None) -> FittedModel:
        """The model with what later traffic is compared with: training sets as it would read them."""
        answers, label = self.sets.part("train")
        seed = self.settings.seed
        spectra: list[Floats] = []
        for part in _parts([answers[row] for row in drawn_rows(len(answers), seed)]):
            found = [np.empty(0)] * len(part)
            for sized in self._read(part).values():
                for row, values in zip(sized.rows.tolist(), sized.spectra, strict=True):
                    found[row] = values
            spectra += found
        tested, tested_label = self.predict("test")
        profile = TrainingProfile.of(spectra, label, tested.probability, tested_label, seed, rule)
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
        for place, rows in training.others(spec.other_n, seed).items():
            if why := too_few(rows.y):
                self.notes.append(f"{place}: {why}")
            else:
                others[place] = fit(rows)
        return FittedModel(
            gp=fit(training.own()),
            encoder=self.settings.encoder,
            encoder_dtype=encoder.dtype,
            n_answers=sets.n,
            encoder_fingerprint=encoder.fingerprint,
            embed=self.settings.embed,
            provenance=self._provenance(len(training.label)),
            others=OtherSizes(
                {int(place.split("/")[1]): gp for place, gp in others.items() if place != SIZE_FREE},
                others.get(SIZE_FREE),
            ),
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
            asked = [(size, row) for size in by_size for row, own in enumerate(texts) if len(own) >= size]
            found = spectra_by_set_size([texts[row][:size] for size, row in asked], self._encoder)
            for size, sized in found.items():
                by_size[size][[start + asked[place][1] for place in sized.rows]] = sized.spectra
        return Training(by_size, sets.n, sets.label[rows])

    def _ordered(self, row: int) -> list[str]:
        """The texts of a set in an order drawn by its id, of which parts are the first ones."""
        texts = [text or "" for text in embedded_texts(self.sets.answers[row], self.settings.embed)]
        order = drawn_orders([self.sets.ids[row]], len(texts))[0]
        return [texts[place] for place in order]

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


def _check_counts(sets: LabelledSets, other_n: str) -> None:
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
