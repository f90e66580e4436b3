"""A fitted model as one folder: classifiers, encoder and number of answers, so that answers can be scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple
from urllib.parse import urlparse

import numpy as np
from numpy.typing import NDArray

from sgpu.encoders import load_encoder
from sgpu.encoders.base import Encoder
from sgpu.encoders.cards import ENCODERS, card_named
from sgpu.encoders.spectra import Embed, SizedSpectra, embedded_texts, spectra_by_set_size
from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.fitted.pinned_model import resolve_model
from sgpu.fitted.profile import TrainingProfile
from sgpu.gp import GPClassifier, Prediction
from sgpu.gp.heads import Head, OtherSizes
from sgpu.gp.persistence import DESCRIPTION, read_json, refuse_code, write_json
from sgpu.hashing import derived_seed, sha256_of_file
from sgpu.no_answer import NoAnswer, no_answer
from sgpu.storage.bundle_files import BUNDLE, bundle_beneath
from sgpu.storage.location import LOCAL, Location

FORMAT = 1


@dataclass(frozen=True)
class SetProblem:
    """Why a response set cannot be scored; ``detail`` holds no text of an answer.

    ``kind`` is a value of `sgpu.logs.records.Reason`, ``index`` that of the answer at fault, if it is one.
    """

    kind: Literal["bad_value", "too_few_answers", "bad_encoding", "no_classifier_for_n"]
    detail: str
    index: int | None = None


class Result(NamedTuple):
    """What a fitted model says of Q response sets; arrays are (Q,), as in `sgpu.gp.Prediction`.

    A set without an answer has its reason in ``no_answer``, "empty" or "refusal" (see `sgpu.no_answer`). Its
    numbers are NaN and it counts as unsafe. All other sets have None there.
    """

    probability: NDArray[np.float64]
    sd: NDArray[np.float64]
    latent_mean: NDArray[np.float64]
    latent_variance: NDArray[np.float64]
    unsafe: NDArray[np.bool_]
    no_answer: list[NoAnswer | None]


@dataclass(frozen=True)
class FittedModel:
    """A classifier with all it takes to score answers.

    ``encoder``, ``encoder_dtype`` and ``encoder_fingerprint`` (sha256 of its weights) are those of the
    training features: another encoder or precision would shift every spectrum.
    ``n_answers`` is N. ``provenance`` says what it was trained on, any JSON object. ``embed`` says what of
    an answer is embedded, see `sgpu.encoders.spectra`. ``others`` answer for sets of other sizes than N.
    ``profile`` is what later traffic is compared with; models that studies fit have none.
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

    def predict(self, answers: Sequence[Sequence[str]]) -> Result:
        """Return the probability of each of Q response sets; Q may be 0, and sets may differ in their size.

        `head_of` says which classifier answers for a size. Raises DataError naming the first row of a size
        that none answers for or with something that is not a string of valid Unicode, IntegrityError if the
        encoder on this machine is not that of the training.
        """
        texts = self.texts_read(answers)
        reasons = [no_answer(row) for row in answers]
        scored = [row for row, reason in enumerate(reasons) if reason is None]
        numbers = np.full((4, len(answers)), np.nan)
        unsafe = np.ones(len(answers), dtype=np.bool_)
        if scored:
            prediction = self.of_spectra(spectra_by_set_size([texts[row] for row in scored], self._encoder))
            numbers[:, scored], unsafe[scored] = prediction[:4], prediction.unsafe
        probability, sd, latent_mean, latent_variance = numbers
        return Result(probability, sd, latent_mean, latent_variance, unsafe, reasons)

    def texts_read(self, answers: Sequence[Sequence[str]]) -> list[list[str]]:
        """The texts of each response set whose spectrum stands for it, as many as a classifier reads.

        Where that is fewer than there are, they are drawn by a seed that depends on the texts alone. Raises
        DataError as `predict` does.
        """
        for row, texts in enumerate(answers):
            if problem := self.problem_of(texts):
                raise DataError(self._of_row(row, texts, problem))
        return [self.set_read(texts) for texts in answers]

    def set_read(self, texts: Sequence[str]) -> list[str]:
        """`texts_read` of one set that has no `problem_of`."""
        embedded = [text or "" for text in embedded_texts(texts, self.embed)]
        return _drawn(embedded, self.head_of(len(embedded)).n)

    def problem_of(self, texts: Sequence[str]) -> SetProblem | None:
        """Why this model cannot read a set, which must not cost others that are read with it."""
        if isinstance(texts, str):  # a sequence of strings too, which would be scored letter by letter
            return SetProblem("bad_value", "the answers are one text, not a list of texts")
        if len(texts) < 2:
            return SetProblem("too_few_answers", f"{len(texts)} answers; agreement needs at least two")
        unchecked: Sequence[Any] = texts
        for index, text in enumerate(unchecked):
            if not isinstance(text, str):
                return SetProblem("bad_value", f"answer {index} is {type(text).__name__}, not text", index)
            try:
                text.encode()
            except UnicodeEncodeError as error:
                detail = f"answer {index} is no valid Unicode at character {error.start}"
                return SetProblem("bad_encoding", detail, index)
        try:
            self.head_of(len(texts))
        except DataError as error:
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
        """Write the classifiers, the profile and `bundle.json`, the last one last."""
        target = Path(folder)
        self.gp.save(target)
        content = {
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
            content["profile_sha256"] = self.profile.save(target)
        write_json(target / BUNDLE, content)

    @classmethod
    def load(cls, folder: Path | str, allow_encoder_path: bool = False) -> FittedModel:
        """Read what `save` wrote. Raises IntegrityError for a changed, broken or foreign folder.

        A model may come from somebody else, so one whose encoder is a folder of this machine, which is then
        opened, is refused with a UsageError unless ``allow_encoder_path``.
        """
        source = Path(folder)
        refuse_code(source)
        content = read_json(source / BUNDLE, FORMAT)
        gp = GPClassifier.load(source)
        profile = content.get("profile_sha256")
        if sha256_of_file(source / DESCRIPTION) != content.get("gp_sha256"):
            raise IntegrityError(
                f"{source / DESCRIPTION} is not the file that {BUNDLE} was written for. Restore the folder."
            )
        try:
            encoder = content["encoder"]
            _check_encoder(encoder["name"], encoder["fingerprint"], source / BUNDLE, allow_encoder_path)
            if "plugins" in encoder:
                ENCODERS.same_plugins(encoder["plugins"], encoder["name"], str(source))
            return cls(
                gp,
                encoder["name"],
                encoder["dtype"],
                content["n_answers"],
                encoder["fingerprint"],
                content["provenance"],
                content.get("embed", "full"),
                OtherSizes.load(source, content.get("others", {})),
                None if profile is None else TrainingProfile.load(source, profile),
            )
        except (KeyError, TypeError) as error:
            raise IntegrityError(
                f"{source / BUNDLE} lacks or misspells {error}. Restore the folder."
            ) from error

    @cached_property
    def _encoder(self) -> Encoder:
        return self.encoder_here()

    def _of_row(self, row: int, texts: Sequence[str], problem: SetProblem) -> str:
        """The problem for a caller who has the answers at hand."""
        if isinstance(texts, str):
            return f"row {row} is one string; give a list of answers for each row"
        if problem.index is None:
            return f"row {row} has {problem.detail}"
        answer = f"answer {problem.index} of row {row}"
        if problem.kind == "bad_encoding":
            return (
                f"{problem.detail.replace(f'answer {problem.index}', answer)}; leave it out or mend its text"
            )
        return (
            f"{answer} is {texts[problem.index]!r}, not a string; leave out rows with missing answers "
            "(an empty answer is an empty string)"
        )


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
