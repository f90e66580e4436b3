"""Questions of one's own: a JSON Lines or Parquet file with one question a row.

Columns: question_id, question, references (list of strings); and where wanted group, split (train or test),
all_answers (list of strings), class, and an image: its bytes in ``image`` (Parquet), or ``image_path`` below
the folder of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sgpu.datasets.base import DatasetCard, ImageReference, Question, Request, Source
from sgpu.datasets.checks import expect_columns
from sgpu.datasets.image_files import FileImage, ParquetImage
from sgpu.datasets.options import NoOptions, read_options
from sgpu.datasets.parquet_rows import rows_without_image
from sgpu.datasets.response_files import COMPRESSED, JSON_LINES, file_sha256, read_rows
from sgpu.datasets.response_rows import RowError
from sgpu.datasets.source_rows import (
    SourceReading,
    SourceRow,
    parquet_schema,
    parquet_source_rows,
    references_of,
    shown,
    text_of,
)
from sgpu.errors import DataError

REQUIRED = ("question_id", "question", "references")
OPTIONAL = ("group", "split", "all_answers", "class", "image_path")
SPLITS = ("train", "test")
KINDS = {
    "jsonl": tuple(kind + packed for kind in JSON_LINES for packed in COMPRESSED),
    "parquet": (".parquet",),
}
LICENCE = "as its owner says"
RAW = (
    f"`path` is the file. Columns: {', '.join(REQUIRED)}; where wanted {', '.join(OPTIONAL)}, and in Parquet "
    "image (the bytes)."
)
RowsOf = Callable[[Path], tuple[list[SourceRow], set[str]]]


def load_jsonl(request: Request) -> Source:
    """Questions of a JSON Lines file. Raises DataError, UsageError."""
    return _load("jsonl", request, _json_rows)


def load_parquet(request: Request) -> Source:
    """Questions of a Parquet file. Raises DataError, UsageError."""
    return _load("parquet", request, _parquet_rows)


def _load(kind: str, request: Request, rows_of: RowsOf) -> Source:
    read_options(kind, NoOptions, request.options)
    file = _require_file(kind, request)
    rows, columns = rows_of(file)
    if not rows:
        raise DataError(f"{file} has no rows. Write one question a row. {RAW}")
    if columns:
        expect_columns(file, columns, REQUIRED)
    reading = SourceReading()
    sides = _Sides()
    questions, _ = reading.questions(rows, lambda _, row: sides.question(row))
    pools, rejected_later = sides.pools(questions)
    for row, error in rejected_later:
        reading.reject(row, error)
    unused = sorted(columns - {*REQUIRED, *OPTIONAL, "image"})
    notes = (f"{file.name}: columns that are not read: {', '.join(unused)}.",) if unused else ()
    revision = f"sha256:{file_sha256(file)}"
    return Source(kind, revision, LICENCE, "", pools, tuple(reading.rejected), notes)


class _Sides:
    """What each good row says beside its question, to see what the others lack."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[SourceRow, str | None]] = {}

    def question(self, row: SourceRow) -> Question:
        question, split = _parsed(row)
        self._said.setdefault(question.question_id, (row, split))
        return question

    def pools(
        self, questions: list[Question]
    ) -> tuple[dict[str, list[Question]], list[tuple[SourceRow, RowError]]]:
        """The pools, and the rows that lack a split, class or image which others have."""
        lacks: dict[str, Callable[[Question], bool]] = {
            "split": lambda q: self._said[q.question_id][1] is None,
            "class": lambda q: q.stratum is None,
            "image": lambda q: q.image is None,
        }
        rejected: list[tuple[SourceRow, RowError]] = []
        for what, is_absent in lacks.items():
            absent = [q for q in questions if is_absent(q)]
            if len(absent) < len(questions):
                error = RowError(
                    f"{what} is missing while other rows have one", f"Give every row its {what}, or none."
                )
                rejected.extend((self._said[q.question_id][0], error) for q in absent)
                questions = [q for q in questions if not is_absent(q)]
        if not any(self._said[q.question_id][1] for q in questions):
            return {"all": questions}, rejected
        return {
            side: [q for q in questions if self._said[q.question_id][1] == side] for side in SPLITS
        }, rejected


def _parsed(row: SourceRow) -> tuple[Question, str | None]:
    values = row.values
    question_id = _id_of(values, "question_id")
    split = values.get("split")
    if split is not None and split not in SPLITS:
        raise RowError(
            f"split is {shown(split)}, outside {', '.join(SPLITS)}", "Name one of them, or leave it out."
        )
    stratum = text_of(values, "class") if values.get("class") is not None else None
    answers = values.get("all_answers")
    question = Question(
        question_id,
        text_of(values, "question"),
        references_of(values.get("references"), "references"),
        group=_id_of(values, "group") if values.get("group") is not None else question_id,
        meta={"class": stratum} if stratum else {},
        all_answers=_texts(answers, "all_answers") if answers is not None else (),
        image=_image(row),
        stratum=stratum,
    )
    return question, split


def _id_of(values: Mapping[str, Any], column: str) -> str:
    value = values.get(column)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text_of(values, column)


def _texts(value: Any, column: str) -> tuple[str, ...]:
    """One entry an annotator: repetitions count."""
    references_of(value, column)
    return tuple(value)


def _image(row: SourceRow) -> ImageReference | None:
    inside, path = row.values.get("image"), row.values.get("image_path")
    if path is None:
        if inside is None:
            return None
        if isinstance(inside, ParquetImage):
            return inside
        raise RowError("image is not read from JSON", "Give the file's name as image_path.")
    if inside is not None:
        raise RowError("the row has both image and image_path", "Give one of them.")
    name = text_of(row.values, "image_path")
    folder = row.file.parent.resolve()
    try:
        target = (folder / name).resolve()
        outside = Path(name).is_absolute() or not target.is_relative_to(folder)
        there = not outside and target.is_file()
    except (OSError, ValueError) as error:
        raise RowError(f"image_path is {shown(name)}: {error}", "Give the path of an image file.") from None
    if outside:
        raise RowError(
            f"image_path is {shown(name)}, which leaves the folder {folder}", "Keep images below that folder."
        )
    if not there:
        raise RowError(
            f"image_path is {shown(name)}, and there is no such file in {folder}", "Put the image there."
        )
    return FileImage(target)


def _require_file(kind: str, request: Request) -> Path:
    file = request.root
    if file is None or not file.is_file():
        raise DataError(f"data set {kind!r}: {file or 'no path'} is not a file. {RAW}")
    if not file.name.lower().endswith(KINDS[kind]):
        raise DataError(f"data set {kind!r} reads {', '.join(KINDS[kind])}, not {file}. {RAW}")
    return file


def _json_rows(file: Path) -> tuple[list[SourceRow], set[str]]:
    rows, columns = [], set[str]()
    for raw in read_rows(file):
        columns.update(raw.record or ())
        fault = RowError(f"the line {raw.fault}", "Write one JSON object a line.") if raw.fault else None
        rows.append(SourceRow(file, f"line {raw.line}", raw.record or {}, fault=fault))
    return rows, columns


def _parquet_rows(file: Path) -> tuple[list[SourceRow], set[str]]:
    names = set(parquet_schema(file).names)
    without = rows_without_image(file) if "image" in names else None
    rows = []
    for row in parquet_source_rows([file], (), optional={*REQUIRED, *OPTIONAL}):
        image = ParquetImage(file, row.row) if without is not None and row.row not in without else None
        rows.append(row._replace(values={**row.values, "image": image}))
    return rows, names


def _card(kind: str, title: str, load: Callable[[Request], Source]) -> DatasetCard:
    return DatasetCard(
        name=kind,
        title=title,
        load=load,
        licence=LICENCE,
        citation="",
        prompt="plain",
        raw=RAW,
    )


JSONL = _card("jsonl", "own questions (JSON Lines)", load_jsonl)
PARQUET = _card("parquet", "own questions (Parquet)", load_parquet)
