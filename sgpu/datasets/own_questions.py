"""Questions of one's own: a JSON Lines or Parquet file with one question a row.

Columns: question_id, question, references (list of strings); and where wanted group, split (train or test),
all_answers (list of strings), class, and an image: its bytes in ``image`` (Parquet), or ``image_path`` below
the folder of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgpu.datasets.base import DatasetCard, ImageReference, LoadRequest, Question, Source
from sgpu.datasets.fields import RowError, choice_of, id_of, quote, references_of, require_text
from sgpu.datasets.image_files import FileImage, ParquetImage
from sgpu.datasets.response_files import JSON_LINES, RowFile
from sgpu.datasets.source_rows import DatasetRow, SourceReading, expect_columns
from sgpu.errors import DataError
from sgpu.hashing import sha256_of_file

REQUIRED = ("question_id", "question", "references")
OPTIONAL = ("group", "split", "all_answers", "class", "image_path")
SPLITS = ("train", "test")
KINDS = {"jsonl": JSON_LINES, "parquet": (".parquet",)}
RAW = (
    f"`path` is the file. Columns: {', '.join(REQUIRED)}; where wanted {', '.join(OPTIONAL)}, and in Parquet "
    "image (the bytes)."
)


def load_jsonl(request: LoadRequest) -> Source:
    """Questions of a JSON Lines file. Raises DataError, UsageError."""
    return _load(JSONL, request)


def load_parquet(request: LoadRequest) -> Source:
    """Questions of a Parquet file. Raises DataError, UsageError."""
    return _load(PARQUET, request)


def _load(card: DatasetCard, request: LoadRequest) -> Source:
    reading = SourceReading.without_options(card, request)
    file = _require_file(card.name, request)
    row_file = RowFile(file, {*REQUIRED, *OPTIONAL, "image"})
    rows, columns = list(row_file), row_file.columns
    if not rows:
        raise DataError(f"{file} has no rows. Write one question a row. {RAW}")
    if columns:
        expect_columns(file, columns, REQUIRED)
    questions = reading.questions(rows, lambda _, row: _question(row))
    pools = _pools(questions, reading)
    unused = sorted(columns - {*REQUIRED, *OPTIONAL, "image"})
    notes = (f"{file.name}: columns that are not read: {', '.join(unused)}.",) if unused else ()
    return reading.source(pools, notes, revision=f"sha256:{sha256_of_file(file)}")


def _pools(questions: list[Question], reading: SourceReading) -> dict[str, list[Question]]:
    """By split, where rows have one. Rows without a split, class or image that others have are rejected."""

    def split(question: Question) -> str | None:
        return reading.rows[question.question_id].values.get("split")

    lacks: dict[str, Callable[[Question], bool]] = {
        "split": lambda q: split(q) is None,
        "class": lambda q: q.stratum is None,
        "image": lambda q: q.image is None,
    }
    for field, is_absent in lacks.items():
        absent = [q for q in questions if is_absent(q)]
        if len(absent) < len(questions):
            reason = f"{field} is missing while other rows have one"
            for question in absent:
                row = reading.rows[question.question_id]
                reading.reject(row, RowError(reason, f"Give every row its {field}, or none."))
            questions = [q for q in questions if not is_absent(q)]
    if not any(map(split, questions)):
        return {"all": questions}
    return {side: [q for q in questions if split(q) == side] for side in SPLITS}


def _question(row: DatasetRow) -> Question:
    values = row.values
    question_id = id_of(values, "question_id")
    choice_of(values, "split", SPLITS)
    stratum = require_text(values, "class") if values.get("class") is not None else None
    answers = values.get("all_answers")
    return Question(
        question_id,
        require_text(values, "question"),
        references_of(values.get("references"), "references"),
        group=id_of(values, "group") if values.get("group") is not None else question_id,
        meta={"class": stratum} if stratum else {},
        all_answers=_texts(answers, "all_answers") if answers is not None else (),
        image=_image(row),
        stratum=stratum,
    )


def _texts(value: Any, column: str) -> tuple[str, ...]:
    """One entry an annotator: repetitions count."""
    references_of(value, column)
    return tuple(value)


def _image(row: DatasetRow) -> ImageReference | None:
    inside, path = row.values.get("image"), row.values.get("image_path")
    if path is None:
        if inside is None:
            return None
        if isinstance(inside, ParquetImage):
            return inside
        raise RowError("image is not read from JSON", "Give the file's name as image_path.")
    if inside is not None:
        raise RowError("the row has both image and image_path", "Give one of them.")
    name = require_text(row.values, "image_path")
    folder = row.file.parent.resolve()
    try:
        target = (folder / name).resolve()
        outside = Path(name).is_absolute() or not target.is_relative_to(folder)
        exists = not outside and target.is_file()
    except (OSError, ValueError) as error:
        raise RowError(f"image_path is {quote(name)}: {error}", "Give the path of an image file.") from None
    if outside:
        raise RowError(
            f"image_path is {quote(name)}, which leaves the folder {folder}", "Keep images below that folder."
        )
    if not exists:
        raise RowError(
            f"image_path is {quote(name)}, and there is no such file in {folder}", "Put the image there."
        )
    return FileImage(target)


def _require_file(kind: str, request: LoadRequest) -> Path:
    file = request.root
    if file is None or not file.is_file():
        raise DataError(f"data set {kind!r}: {file or 'no path'} is not a file. {RAW}")
    if not file.name.lower().endswith(KINDS[kind]):
        raise DataError(f"data set {kind!r} reads {', '.join(KINDS[kind])}, not {file}. {RAW}")
    return file


JSONL = DatasetCard(
    name="jsonl",
    title="own questions (JSON Lines)",
    load=load_jsonl,
    licence="as its owner says",
    citation="",
    prompt="plain",
    max_tokens=None,
    stop=(),
    raw=RAW,
)
PARQUET = replace(JSONL, name="parquet", title="own questions (Parquet)", load=load_parquet)
