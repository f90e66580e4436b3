"""A fitted model as one folder: what reads questions with answers, what reads spectra, where it is from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlparse

from numpy.typing import ArrayLike

from sgpu.agreement import content_agreement, rules_sha256, why_no_agreement
from sgpu.encoders.base import Encoder
from sgpu.encoders.spectra import Embed, embedded_texts, spectra_by_set_size
from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.evaluation.inputs import checked_labels
from sgpu.fitted.pinned_model import resolve_model
from sgpu.fitted.profile import TrainingProfile
from sgpu.fitted.result import (
    NO_CONTENT,
    Declined,
    Result,
    SetProblem,
    check_questions,
    problem_of_texts,
)
from sgpu.fitted.spectrum_classifier import SpectrumClassifier
from sgpu.gp.content import ContentClassifier
from sgpu.gp.persistence import DESCRIPTION, read_json, refuse_code, write_json
from sgpu.hashing import sha256_of_file
from sgpu.no_answer import no_answer
from sgpu.storage.bundle_files import BUNDLE, BUNDLE_FORMAT, bundle_beneath
from sgpu.storage.location import LOCAL, Location

CONTENT = "content"  # folder of the classifiers of agreement
READY = "sgpu-base"  # the model that ships with the package
LEAST_LABELS = 50  # of a recalibration; docs/studies/sgpu_base.md has what they gain


@dataclass(frozen=True)
class FittedModel:
    """What it takes to score answers: a classifier of spectra, classifiers of agreement on content, or both.

    ``content`` reads the sets whose question is known, ``spectrum`` the others. ``embed`` says what of an
    answer is read, see `sgpu.encoders.spectra`. ``provenance`` says what it was trained on, any JSON object.
    ``profile`` is what later traffic is compared with; models that studies fit have none. A model that was
    fitted to answers of other models than the user's is not ``calibrated``: it gives a confidence, which
    ranks, and no probability, until `recalibrate` has seen labels.
    """

    spectrum: SpectrumClassifier | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    embed: Embed = "full"
    profile: TrainingProfile | None = None
    content: ContentClassifier | None = None
    calibrated: bool = True

    def predict(
        self,
        answers: Sequence[Sequence[str]],
        questions: Sequence[str | None] | None = None,
        encoder: Encoder | None = None,
    ) -> Result:
        """Say of each of Q response sets which answer to show and whether to trust it; Q may be 0.

        Sets may differ in their size. A set is read by agreement on content where that applies, see
        `Result.declined`, and else by its spectrum. ``encoder`` takes the place of the model's own, which is
        loaded only if a spectrum is needed. Raises DataError naming the first row of a size that no
        classifier answers for or with something that is not a string of valid Unicode, IntegrityError if the
        encoder on this machine is not that of the training.
        """
        sets, asked = self._check(answers, questions)
        result = Result.unknown([no_answer(texts) for texts in sets])
        scored = [row for row, reason in enumerate(result.no_answer) if reason is None]
        for row in scored:
            result.declined[row] = self.why_no_agreement(sets[row], asked[row])
        by_agreement = [row for row in scored if result.declined[row] is None]
        by_spectrum = [row for row in scored if result.declined[row]]
        if by_agreement:
            self.fill_agreement(result, by_agreement, sets, asked)
        if by_spectrum and self.spectrum is not None:
            read = [self.set_read(sets[row]) for row in by_spectrum]
            spectra = spectra_by_set_size(read, encoder or self.spectrum.own_encoder)
            result.fill(by_spectrum, self.spectrum.predict(spectra), "spectrum")
        return result.complete(self.calibrated)

    def _check(
        self, answers: Sequence[Sequence[str]], questions: Sequence[str | None] | None
    ) -> tuple[list[Sequence[str]], list[str | None]]:
        """Return sets and questions; DataError naming the first row that this model cannot read."""
        sets, asked = list(answers), check_questions(questions, len(answers))
        for row, texts in enumerate(sets):
            if problem := self.problem_of(texts, asked[row]):
                raise DataError(problem.describe(row, texts))
        return sets, asked

    def fill_agreement(
        self,
        result: Result,
        rows: Sequence[int],
        answers: Sequence[Sequence[str]],
        asked: Sequence[str | None],
    ) -> None:
        """Fill in what agreement on content says of the sets at the places ``rows``, to which it applies."""
        assert self.content is not None
        found = [content_agreement(self._read(answers[row]), asked[row] or "") for row in rows]
        sets, chosen, p_answer = self.content.predict(found)
        result.fill(rows, sets, "agreement")
        result.chosen[rows], result.p_answer[rows] = chosen, p_answer
        for row, place, one in zip(rows, chosen, found, strict=True):
            result.answer[row] = list(answers[row])[place]
            result.confidence[row] = one.centrality[place]

    def require_spectrum(self) -> SpectrumClassifier:
        """Return the classifier of spectra; UsageError for a model without one."""
        if self.spectrum is None:
            raise UsageError(
                "this model reads questions with their answers and no spectra, which are all that logs give; "
                "fit one of your own with `sgpu fit`"
            )
        return self.spectrum

    def why_no_agreement(self, texts: Sequence[str], question: str | None) -> Declined | None:
        """Return why a set is not read by agreement on content; None if it is."""
        return NO_CONTENT if self.content is None else why_no_agreement(self._read(texts), question)

    def set_read(self, texts: Sequence[str]) -> list[str]:
        """Return the texts whose spectrum stands for a set; DataError for a size that no classifier reads."""
        read = self._read(texts)
        return read if self.spectrum is None else self.spectrum.texts_read(read)

    def _read(self, texts: Sequence[str]) -> list[str]:
        return [text or "" for text in embedded_texts(texts, self.embed)]

    def problem_of(self, texts: Sequence[str], question: str | None = None) -> SetProblem | None:
        """Return why this model cannot read a set, which must not cost others that are read with it."""
        if problem := problem_of_texts(texts):
            return problem
        try:
            if self.spectrum is not None:
                self.spectrum.head_of(len(texts))
        except DataError as error:
            if self.why_no_agreement(texts, question):
                return SetProblem("no_classifier_for_n", str(error))
        return None

    def recalibrate(
        self,
        answers: Sequence[Sequence[str]],
        labels: ArrayLike,
        questions: Sequence[str | None] | None = None,
    ) -> FittedModel:
        """Return this model with probabilities of what M ``labels`` (M,) say: 1 for right, 0 for wrong.

        Label the answer that `predict` shows of each of M response sets; then ``p_answer`` is the probability
        that it is right. A slope and an offset of the latent functions are fitted, see
        `sgpu.gp.logistic.Recalibration`, so that sets are ranked as before. Sets that are read by their
        spectrum keep their probabilities. Raises DataError for other labels, and for fewer than
        `LEAST_LABELS` sets that agreement on content reads.
        """
        given, (sets, asked) = checked_labels(labels), self._check(answers, questions)
        if len(given) != len(sets):
            raise DataError(f"{len(given)} labels for {len(sets)} response sets; give one for each")
        why = [no_answer(texts) or self.why_no_agreement(texts, asked[row]) for row, texts in enumerate(sets)]
        rows = [row for row, reason in enumerate(why) if reason is None]
        if self.content is None or len(rows) < LEAST_LABELS:
            counts = Counter(reason for reason in why if reason)
            others = "".join(f"; {count}: {reason}" for reason, count in counts.items())
            raise DataError(
                f"{len(rows)} of {len(given)} labelled sets are read by agreement on content{others}; "
                f"recalibration takes {LEAST_LABELS}. Label more, with their questions, or use `sgpu fit`."
            )
        found = [content_agreement(self._read(sets[row]), asked[row] or "") for row in rows]
        return replace(self, content=self.content.recalibrate(found, given[rows]), calibrated=True)

    def save(self, folder: Path | str) -> None:
        """Write the classifiers, the profile and `bundle.json`, which is written last."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        described: dict[str, Any] = {
            "format": BUNDLE_FORMAT,
            "embed": self.embed,
            "calibrated": self.calibrated,
            "provenance": dict(self.provenance),
        }
        if self.spectrum is not None:
            described["spectrum"] = self.spectrum.save(target)
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
        described = read_json(source / BUNDLE, BUNDLE_FORMAT)
        spectrum, profile = described.get("spectrum"), described.get("profile_sha256")
        try:
            return cls(
                None if spectrum is None else SpectrumClassifier.load(source, spectrum, allow_encoder_path),
                described["provenance"],
                described["embed"],
                None if profile is None else TrainingProfile.load(source, profile),
                _load_content(source, described),
                described["calibrated"],
            )
        except (KeyError, TypeError) as error:
            raise IntegrityError(
                f"{source / BUNDLE} lacks or misspells {error}. Restore the folder."
            ) from error


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


def load_model(
    uri: str | Path, tracking_uri: str | None = None, allow_encoder_path: bool = False
) -> FittedModel:
    """Load "sgpu-base", which ships, or a model from a folder, a file://, s3:// or gs:// URI, or MLflow.

    "sgpu-base" gives an answer and a confidence, and probabilities after `FittedModel.recalibrate`; its card
    is docs/studies/sgpu_base.md. A folder of that name is "./sgpu-base".
    MLflow's URIs are models:/name@alias, models:/name/version and runs:/id/path, in the store
    ``tracking_uri`` (default: `sgpu.tracking.store_address`). Only files are copied, none of the code stored
    beside them is run, and those of a registered model are compared with the sha256 that was registered.
    Raises UsageError for another scheme and for an encoder that is a folder, unless ``allow_encoder_path``;
    DataError where nothing is found, IntegrityError for files that were changed.
    """
    text = str(uri)
    if text == READY:
        return FittedModel.load(Path(__file__).with_name(READY))
    if urlparse(text).scheme in ("", LOCAL):  # read where it lies, so that an error names its file
        return FittedModel.load(bundle_beneath(Location.of(text).local, text), allow_encoder_path)
    with TemporaryDirectory(prefix="sgpu-model-") as work:
        return FittedModel.load(resolve_model(text, Path(work), tracking_uri).folder, allow_encoder_path)
