"""From the answers of ten annotators to references: normalised, counted, kept by their support.

The normalisation follows the evaluation of the VQA challenge (Antol et al., ICCV 2015): an answer that three
annotators gave counts as fully right there, hence the default support.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sgpu.datasets.base import ImageReference, Question, RejectedRow
from sgpu.datasets.response_rows import RowError
from sgpu.datasets.source_rows import shown, text_of

ANNOTATORS = 10
UNANSWERABLE = frozenset({"unanswerable", "unsuitable", "unsuitable image"})
YES_NO = frozenset({"yes", "no"})

_ARTICLES = frozenset({"a", "an", "the"})
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten"
# Left out are forms that are another word without their apostrophe ("we'll", "it's", "I'd").
_CONTRACTED = """
ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mightn't mustn't needn't
shouldn't wasn't weren't won't wouldn't could've might've must've should've would've i'm i've we've you've
they've you'd they'd you'll they'll you're they're he's she's that's there's here's what's where's who's
when's how's why's somebody's someone's something's y'all o'clock ma'am
"""
_NUMBERS = {word: str(value) for value, word in enumerate(_NUMBER_WORDS.split())} | {"none": "0"}
_CONTRACTIONS = {form.replace("'", ""): form for form in _CONTRACTED.split()}
_DIGIT_COMMA = re.compile(r"(?<=\d),(?=\d)")
_LONE_PERIOD = re.compile(r"\.(?!\d)")
_PUNCTUATION = re.compile(r"""[;/\[\]"{}()=+\\_\-><@`,?!]""")


class AnnotatorSettings(BaseModel):
    """``refs``: answers with ``min_support`` annotators, the consensus alone, or all of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    refs: Literal["support", "consensus", "all"] = "support"
    min_support: int = Field(default=3, ge=1, le=ANNOTATORS)


@dataclass(frozen=True)
class AnnotatedRow:
    """A row as its source holds it, unchecked. ``image`` is None where ``image_name`` cannot be found."""

    pool: str
    file: str
    row: str
    question_id: Any
    text: Any
    answers: Any  # strings, or mappings with an ``answer``
    image_name: str
    image: ImageReference | None
    group: str | None = None  # None: the question is a group of its own
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Checked:
    """The questions of each pool, and the rows that could not become one."""

    pools: dict[str, list[Question]]
    rejected: list[RejectedRow]


def normalised(answer: str) -> str:
    """The form in which answers are compared; the answer in lower case if nothing else would be left."""
    plain = " ".join(answer.lower().replace("’", "'").split())
    text = _LONE_PERIOD.sub("", _PUNCTUATION.sub(" ", _DIGIT_COMMA.sub("", plain)))
    words = (_CONTRACTIONS.get(word, _NUMBERS.get(word, word)) for word in text.split())
    return " ".join(word for word in words if word not in _ARTICLES) or plain


def support(answers: Iterable[str]) -> dict[str, int]:
    """How many annotators gave each normalised answer, most first, ties by text; blanks are no answer."""
    counts = Counter(normalised(answer) for answer in answers if answer.strip())
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def references(answers: Sequence[str], settings: AnnotatorSettings) -> tuple[str, ...]:
    """The references by ``settings``, best supported first; the first of all where none has the support.

    Each stands in the spelling that most annotators used, since a judge reads it.
    """
    counts = support(answers)
    spellings: dict[str, Counter[str]] = {key: Counter() for key in counts}
    for answer in filter(str.strip, answers):
        spellings[normalised(answer)][answer.strip()] += 1
    least = {"support": settings.min_support, "consensus": ANNOTATORS + 1, "all": 1}[settings.refs]
    kept = [key for key, count in counts.items() if count >= least] or list(counts)[:1]
    return tuple(min(spellings[key], key=lambda text: (-spellings[key][text], text)) for key in kept)


def check_rows(
    rows: Iterable[AnnotatedRow | RejectedRow], settings: AnnotatorSettings, pools: Iterable[str]
) -> Checked:
    """Questions by pool. A row that is malformed or repeats an id is rejected; of two the first stays."""
    checked = Checked({pool: [] for pool in pools}, [])
    seen: dict[str, AnnotatedRow] = {}
    for row in rows:
        if isinstance(row, RejectedRow):
            checked.rejected.append(row)
            continue
        try:
            question = _question(row, settings)
            earlier = seen.setdefault(question.question_id, row)
            if earlier is not row:
                used = (
                    f"the id {shown(question.question_id)} is already that of {earlier.file}, {earlier.row}"
                )
                raise RowError(used, "Give each question its own id.")
        except RowError as error:
            checked.rejected.append(RejectedRow(row.file, row.row, error.reason, error.remedy))
        else:
            checked.pools[row.pool].append(question)
    return checked


def id_of(values: Mapping[str, Any], column: str) -> str:
    """The whole number or the text in ``column`` as text. Raises RowError."""
    value = values.get(column)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text_of(values, column)


def _question(row: AnnotatedRow, settings: AnnotatorSettings) -> Question:
    question_id = id_of({"question_id": row.question_id}, "question_id")
    text = text_of({"question": row.text}, "question")
    answers = _answer_texts(row.answers)
    if row.image is None:
        raise RowError(f"image {row.image_name} is absent", "Download the images again, or add this one.")
    counts = support(answers)
    consensus = next(iter(counts))
    meta = {
        **{key: value for key, value in row.meta.items() if value is not None},
        "answer_counts": counts,
        "yes_no": consensus in YES_NO,
        "unanswerable": consensus in UNANSWERABLE,
        "n_unanswerable": sum(counts.get(answer, 0) for answer in UNANSWERABLE),
    }
    group = question_id if row.group is None else row.group
    return Question(question_id, text.strip(), references(answers, settings), group, meta, answers, row.image)


def _answer_texts(value: Any) -> tuple[str, ...]:
    """The annotators' answers as they are; a blank one is an annotator who gave none."""
    if value is None or value == []:
        raise RowError("there are no answers", "Give the answers of the annotators, or leave the row out.")
    if not isinstance(value, list):
        raise RowError(f"answers is {shown(value)}, not a list", "Give answers as a list of strings.")
    texts: list[str] = []
    for index, entry in enumerate(value):
        text, name = entry.get("answer") if isinstance(entry, Mapping) else entry, f"answer {index}"
        texts.append(text if isinstance(text, str) and not text.strip() else text_of({name: text}, name))
    if not any(map(str.strip, texts)):
        raise RowError("all answers are blank", "Give at least one answer, or leave the row out.")
    return tuple(texts)
