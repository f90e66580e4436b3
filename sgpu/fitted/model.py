"""A fitted model as one folder: classifiers, encoder and number of answers, so that answers can be scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlparse

import numpy as np

from sgpu.agreement import content_agreement, rules_sha256, why_no_agreement
from sgpu.encoders import load_encoder
from sgpu.encoders.base import Encoder
from sgpu.encoders.cards import ENCODERS, card_named
from sgpu.encoders.spectra import Embed, SizedSpectra, embedded_texts, spectra_by_set_size
from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.fitted.pinned_model import resolve_model
from sgpu.fitted.profile import TrainingProfile
from sgpu.fitted.result import (
    NO_CONTENT,
    Result,
    SetProblem,
    WhySpectrum,
    check_questions,
    problem_of_texts,
)
from sgpu.gp import GPClassifier, Prediction
from sgpu.gp.content import ContentClassifier
from sgpu.gp.heads import Head, OtherSizes
from sgpu.gp.persistence import DESCRIPTION, read_json, refuse_code, write_json
from sgpu.hashing import derived_seed, sha256_of_file
from sgpu.no_answer import no_answer
from sgpu.storage.bundle_files import BUNDLE, bundle_beneath
from sgpu.storage.location import LOCAL, Location

FORMAT = 1
CONTENT = "content"  # folder of the classifiers of agreement


@dataclass(frozen=True)
class FittedModel:
    """A classifier with all it takes to score answers.

    ``encoder``, ``encoder_dtype`` and ``encoder_fingerprint`` (sha256 of its weights) are those of the
    training features: another encoder or precision would shift every spectrum.
    ``n_answers`` is N. ``provenance`` says what it was trained on, any JSON object. ``embed`` says what of
    an answer is embedded, see `sgpu.encoders.spectra`. ``others`` answer for sets of other sizes than N.
    ``profile`` is what later traffic is compared with; models that studies fit have none. ``content`` reads
    the sets whose question is known, by agreement on content.
    """

    gp: GPClassifier
    encoder: str
    encoder_dtype: str
    n_answers: int
    encoder_fingerprint: str
    provenance: Mapping[str, Any] = field(default_factory=dict)
    embed: Embed = "full"
    others: OtherSizes = field(default_factory=OtherSizes)
    profile: TrainingProfile | None = None
    content: ContentClassifier | None = None

    def __post_init__(self) -> None:
        features = self.gp.fit_report.features
        if features != self.n_answers:
            raise DataError(
                f"n_answers is {self.n_answers}, but the classifier was fitted to {features} eigenvalues; "
                "they are the same number"
            )

    def head_of(self, n: int) -> Head:
        """The classifier that answers for sets of ``n`` answers; DataError if none can."""
        return self.others.head(n, self.gp, self.n_answers)

    def predict(
        self,
        answers: Sequence[Sequence[str]],
        questions: Sequence[str | None] | None = None,
        encoder: Encoder | None = None,
    ) -> Result:
        """Return the probability of each of Q response sets; Q may be 0, and sets may differ in their size.

        A model with ``content`` reads a set by agreement where it can, see `why_spectrum`, and any other by
        its spectrum; `head_of` says which classifier answers for a size. ``encoder`` takes the place of the
        model's own, which is loaded only if a spectrum is needed. Raises DataError naming the first row of a
        size that none answers for or with something that is not a string of valid Unicode, IntegrityError if
        the encoder on this machine is not that of the training.
        """
        sets, asked = list(answers), check_questions(questions, len(answers))
        for row, texts in enumerate(sets):
            if problem := self.problem_of(texts, asked[row]):
                raise DataError(problem.describe(row, texts))
        result = Result.unknown([no_answer(texts) for texts in sets])
        scored = [row for row, reason in enumerate(result.no_answer) if reason is None]
        for row in scored:
            result.why_spectrum[row] = self.why_spectrum(sets[row], asked[row])
        if rows := [row for row in scored if result.why_spectrum[row]]:
            texts_read = [self.set_read(sets[row]) for row in rows]
            spectra = spectra_by_set_size(texts_read, encoder or self._encoder)
            result.fill(rows, self.of_spectra(spectra), "spectrum")
        if rows := [row for row in scored if not result.why_spectrum[row]]:
            self._agree(result, rows, sets, asked)
        return result

    def _agree(
        self,
        result: Result,
        rows: Sequence[int],
        answers: Sequence[Sequence[str]],
        asked: Sequence[str | None],
    ) -> None:
        """Fill in what agreement on content says of the sets at the places ``rows``."""
        assert self.content is not None
        found = [content_agreement(self._embedded(answers[row]), asked[row] or "") for row in rows]
        sets, chosen, p_answer = self.content.predict(found)
        result.fill(rows, sets, "agreement")
        result.chosen[rows], result.p_answer[rows] = chosen, p_answer
        for row, place in zip(rows, chosen, strict=True):
            result.answer[row] = list(answers[row])[place]

    def why_spectrum(self, texts: Sequence[str], question: str | None) -> WhySpectrum | None:
        """Return why a set is read by its spectrum; None if it is read by agreement on content."""
        return NO_CONTENT if self.content is None else why_no_agreement(self._embedded(texts), question)

    def texts_read(self, answers: Sequence[Sequence[str]]) -> list[list[str]]:
        """The texts of each response set whose spectrum stands for it, as many as a classifier reads.

        Where that is fewer than there are, they are drawn by a seed that depends on the texts alone. Raises
        DataError as `predict` does.
        """
        for row, texts in enumerate(answers):
            if problem := self.problem_of(texts):
                raise DataError(problem.describe(row, texts))
        return [self.set_read(texts) for texts in answers]

    def set_read(self, texts: Sequence[str]) -> list[str]:
        """`texts_read` of one set that has no `problem_of`."""
        embedded = self._embedded(texts)
        return _drawn(embedded, self.head_of(len(embedded)).n)

    def _embedded(self, texts: Sequence[str]) -> list[str]:
        return [text or "" for text in embedded_texts(texts, self.embed)]

    def problem_of(self, texts: Sequence[str], question: str | None = None) -> SetProblem | None:
        """Why this model cannot read a set, which must not cost others that are read with it."""
        if problem := problem_of_texts(texts):
            return problem
        try:
            self.head_of(len(texts))
        except DataError as error:
            if self.why_spectrum(texts, question):
                return SetProblem("no_classifier_for_n", str(error))
        return None

    def of_spectra(self, spectra: Mapping[int, SizedSpectra]) -> Prediction:
        """The prediction of spectra of `texts_read`, by their size; in the order of their rows."""
        parts = [self.head_of(n).predict(sized.spectra) for n, sized in spectra.items()]
        order = np.argsort(np.concatenate([sized.rows for sized in spectra.values()]))
        return Prediction(*(np.concatenate(column)[order] for column in zip(*parts, strict=True)))

    def encoder_here(self, device: str = "auto", fixed_batches: bool = False) -> Encoder:
        """The model's encoder, see `load_encoder`; IntegrityError if the weights here are others."""
        encoder = load_encoder(self.encoder, self.encoder_dtype, device, fixed_batches)
        if self.encoder_fingerprint != encoder.fingerprint:
            raise IntegrityError(
                f"the weights of encoder {self.encoder!r} here have sha256 {encoder.fingerprint}, "
                f"the model was fitted with {self.encoder_fingerprint}. Get that revision or fit again."
            )
        return encoder

    def save(self, folder: Path | str) -> None:
        """Write the classifiers, the profile and `bundle.json`, which is written last."""
        target = Path(folder)
        self.gp.save(target)
        described = {
            "format": FORMAT,
            "encoder": {
                "name": self.encoder,
                "dtype": self.encoder_dtype,
                "fingerprint": self.encoder_fingerprint,
                **({"plugins": plugins} if (plugins := ENCODERS.plugins(self.encoder)) else {}),
            },
            "n_answers": self.n_answers,
            "embed": self.embed,
            "provenance": dict(self.provenance),
            "gp_sha256": sha256_of_file(target / DESCRIPTION),
            "others": self.others.save(target),
        }
        if self.profile is not None:
            described["profile_sha256"] = self.profile.save(target)
        if self.content is not None:
            self.content.save(target / CONTENT)
            described["content_sha256"] = _hash_descriptions(target / CONTENT)
            described["agreement"] = rules_sha256()
        write_json(target / BUNDLE, described)

    @classmethod
    def load(cls, folder: Path | str, allow_encoder_path: bool = False) -> FittedModel:
        """Read what `save` wrote. Raises IntegrityError for a changed, broken or foreign folder.

        A model may come from somebody else, so one whose encoder is a folder of this machine, which is then
        opened, is refused with a UsageError unless ``allow_encoder_path``.
        """
        source = Path(folder)
        refuse_code(source)
        described = read_json(source / BUNDLE, FORMAT)
        gp = GPClassifier.load(source)
        profile = described.get("profile_sha256")
        if sha256_of_file(source / DESCRIPTION) != described.get("gp_sha256"):
            raise IntegrityError(
                f"{source / DESCRIPTION} is not the file that {BUNDLE} was written for. Restore the folder."
            )
        try:
            encoder = described["encoder"]
            _check_encoder(encoder["name"], encoder["fingerprint"], source / BUNDLE, allow_encoder_path)
            if "plugins" in encoder:
                ENCODERS.same_plugins(encoder["plugins"], encoder["name"], str(source))
            return cls(
                gp,
                encoder["name"],
                encoder["dtype"],
                described["n_answers"],
                encoder["fingerprint"],
                described["provenance"],
                described.get("embed", "full"),
                OtherSizes.load(source, described.get("others", {})),
                None if profile is None else TrainingProfile.load(source, profile),
                _load_content(source, described),
            )
        except (KeyError, TypeError) as error:
            raise IntegrityError(
                f"{source / BUNDLE} lacks or misspells {error}. Restore the folder."
            ) from error

    @cached_property
    def _encoder(self) -> Encoder:
        return self.encoder_here()


def _load_content(source: Path, described: Mapping[str, Any]) -> ContentClassifier | None:
    """Read the classifiers of agreement if the bundle names them; IntegrityError if they are others."""
    if "content_sha256" not in described:
        return None
    folder = source / CONTENT
    if described["agreement"] != rules_sha256():
        raise IntegrityError(
            f"the classifiers in {folder} were fitted when words were counted by other rules. Fit "
            "again, or use the version of SGPU that fitted them."
        )
    if _hash_descriptions(folder) != described["content_sha256"]:
        raise IntegrityError(
            f"{folder} does not hold the classifiers that {BUNDLE} was written for. Restore the folder."
        )
    return ContentClassifier.load(folder)


def _hash_descriptions(folder: Path) -> dict[str, str]:
    """Return the sha256 of each classifier's description beneath a folder, by its relative path."""
    found = sorted(folder.rglob(DESCRIPTION))
    return {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in found}


def _check_encoder(name: str, fingerprint: str | None, bundle: Path, allow_path: bool) -> None:
    if not isinstance(fingerprint, str):
        raise IntegrityError(
            f"{bundle} does not say which weights its encoder has (fingerprint: null). Fit it again, with "
            "`sgpu fit` or the study that made it."
        )
    if not allow_path and card_named(name) is None and Path(name).is_dir():
        raise UsageError(
            f"{bundle} names its encoder by the folder {name}. If you trust that folder, set "
            "allow_encoder_path to true."
        )


def _drawn(texts: list[str], n: int) -> list[str]:
    """All texts, or n of them by a seed of their own, whatever their order."""
    if len(texts) == n:
        return texts
    ordered = sorted(texts)
    chosen = np.random.default_rng(derived_seed(*ordered)).permutation(len(ordered))[:n]
    return [ordered[index] for index in sorted(chosen)]


def load_model(
    uri: str | Path, tracking_uri: str | None = None, allow_encoder_path: bool = False
) -> FittedModel:
    """Load a fitted model from a folder, a file://, s3:// or gs:// URI, or MLflow.

    MLflow's URIs are models:/name@alias, models:/name/version and runs:/id/path, in the store
    ``tracking_uri`` (default: `sgpu.tracking.store_address`). Only files are copied, none of the code stored
    beside them is run, and those of a registered model are compared with the sha256 that was registered.
    Raises UsageError for another scheme and for an encoder that is a folder, unless ``allow_encoder_path``;
    DataError where nothing is found, IntegrityError for files that were changed.
    """
    text = str(uri)
    if urlparse(text).scheme in ("", LOCAL):  # read where it lies, so that an error names its file
        return FittedModel.load(bundle_beneath(Location.of(text).local, text), allow_encoder_path)
    with TemporaryDirectory(prefix="sgpu-model-") as work:
        return FittedModel.load(resolve_model(text, Path(work), tracking_uri).folder, allow_encoder_path)
