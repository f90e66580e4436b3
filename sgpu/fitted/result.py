"""What a fitted model says of response sets, and why it cannot read one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from sgpu.agreement import Decline
from sgpu.errors import DataError
from sgpu.gp import Prediction
from sgpu.no_answer import NoAnswer

ReadBy = Literal["agreement", "spectrum"]
Declined = Decline | Literal["the model does not use questions"]
NO_CONTENT: Declined = "the model does not use questions"
NEEDS_LABELS = "needs_labels"


@dataclass(frozen=True)
class SetProblem:
    """Why a response set cannot be scored; ``detail`` holds no text of an answer.

    ``kind`` is a value of `sgpu.logs.records.Reason`, ``index`` that of the answer at fault, if it is one.
    """

    kind: Literal["bad_value", "too_few_answers", "bad_encoding", "no_classifier_for_n"]
    detail: str
    index: int | None = None

    def describe(self, row: int, texts: Sequence[str]) -> str:
        """Return the problem of a row for a caller who has its ``texts`` at hand."""
        if isinstance(texts, str):
            return f"row {row} is one string; give a list of answers for each row"
        if self.index is None:
            return f"row {row} has {self.detail}"
        answer = f"answer {self.index} of row {row}"
        if self.kind == "bad_encoding":
            return f"{self.detail.replace(f'answer {self.index}', answer)}; leave it out or mend its text"
        return (
            f"{answer} is {texts[self.index]!r}, not a string; leave out rows with missing answers "
            "(an empty answer is an empty string)"
        )


class Result(NamedTuple):
    """What a fitted model says of Q response sets; arrays are (Q,), as in `sgpu.gp.Prediction`.

    A set without an answer has its reason in ``no_answer``, "empty" or "refusal" (see `sgpu.no_answer`). Its
    numbers are NaN and it counts as unsafe. All other sets have None there.

    ``by`` says what a set was read by: "agreement" on content, or if that ``declined`` its "spectrum"; None
    if the model has no classifier of spectra. Sets read by agreement have the ``answer`` to show, its place
    ``chosen`` among the answers, and ``p_answer``, the probability that it is right; for others these are
    None, -1 and NaN. ``p_answer`` is also NaN if the model was fitted without votes on single answers.

    ``confidence`` ranks, from 0 to 1, higher for more trustworthy: ``p_answer``, or else ``probability``, and
    0 for a set without an answer. Where there is no ``probability``, ``reason`` says why: that of
    ``no_answer`` or ``declined``, or "needs_labels" of a model that is not calibrated for the user's own
    answers, see `FittedModel.recalibrate`. The confidence is then the mean overlap of the answer with the
    others, which ranks better than classifiers of other data do (docs/studies/sgpu_plus_results.md).
    """

    probability: NDArray[np.float64]
    sd: NDArray[np.float64]
    latent_mean: NDArray[np.float64]
    latent_variance: NDArray[np.float64]
    unsafe: NDArray[np.bool_]
    no_answer: list[NoAnswer | None]
    answer: list[str | None]
    chosen: NDArray[np.int64]
    p_answer: NDArray[np.float64]
    confidence: NDArray[np.float64]
    by: list[ReadBy | None]
    declined: list[Declined | None]
    reason: list[str | None]

    @classmethod
    def unknown(cls, no_answer: list[NoAnswer | None]) -> Result:
        """Return a result that knows nothing yet of Q sets, to be filled in."""
        q = len(no_answer)
        probability, sd, latent_mean, latent_variance, p_answer, confidence = np.full((6, q), np.nan)
        return cls(
            probability=probability,
            sd=sd,
            latent_mean=latent_mean,
            latent_variance=latent_variance,
            unsafe=np.ones(q, dtype=np.bool_),
            no_answer=no_answer,
            answer=[None] * q,
            chosen=np.full(q, -1, dtype=np.int64),
            p_answer=p_answer,
            confidence=confidence,
            by=[None] * q,
            declined=[None] * q,
            reason=[None] * q,
        )

    @classmethod
    def join(cls, parts: Sequence[Result]) -> Result:
        """Return the results of sets that were read part by part as one."""
        columns: Any = zip(cls.unknown([]), *parts, strict=True)
        return cls(*(_join_column(column) for column in columns))

    def fill(self, rows: Sequence[int], prediction: Prediction, by: ReadBy) -> None:
        """Write what was said of the sets at the places ``rows``."""
        for column, values in zip(self[:5], prediction, strict=True):
            cast("NDArray[Any]", column)[rows] = values
        for row in rows:
            self.by[row] = by

    def complete(self, calibrated: bool) -> Result:
        """Return this result with confidence and reasons, and without probabilities unless ``calibrated``."""
        confidence = self.confidence.copy()
        if calibrated:
            confidence = np.where(np.isnan(self.p_answer), self.probability, self.p_answer)
        confidence[[reason is not None for reason in self.no_answer]] = 0.0
        read = None if calibrated else NEEDS_LABELS
        reason = [
            no_answer or (declined if by is None else read)
            for no_answer, declined, by in zip(self.no_answer, self.declined, self.by, strict=True)
        ]
        whole = self._replace(confidence=confidence, reason=reason)
        if calibrated:
            return whole
        unknown = np.full(len(confidence), np.nan)
        return whole._replace(
            probability=unknown, sd=unknown, p_answer=unknown, unsafe=np.ones(len(unknown), dtype=np.bool_)
        )


def _join_column(column: tuple[Any, ...]) -> Any:
    if isinstance(column[0], list):
        return [value for part in column for value in part]
    return np.concatenate(column)


def check_questions(questions: Sequence[str | None] | None, rows: int) -> list[str | None]:
    """Return one question or None for each of ``rows`` response sets; DataError for anything else."""
    if questions is None:
        return [None] * rows
    if isinstance(questions, str):
        raise DataError("questions is one string; give a list with a question or None for each response set")
    if len(questions) != rows:
        raise DataError(
            f"{len(questions)} questions for {rows} response sets; give one for each, or None for a set "
            "without a question"
        )
    unchecked: Sequence[Any] = questions
    for row, question in enumerate(unchecked):
        if question is not None and not isinstance(question, str):
            raise DataError(
                f"the question of row {row} is {question!r}, not a string; give None for a set without one"
            )
    return list(questions)


def problem_of_texts(texts: Sequence[str]) -> SetProblem | None:
    """Return why no model could read these answers, whatever their number; None if one could."""
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
    return None
