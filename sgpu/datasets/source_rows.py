"""Rows of a source become questions one by one; a row that cannot is rejected with its reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from sgpu.datasets.base import Question, RejectedRow
from sgpu.datasets.parquet_rows import files_of_split, iter_rows
from sgpu.datasets.response_rows import RowError
from sgpu.errors import DataError
from sgpu.storage.parquet_files import schema_of

SHOWN_CHARS = 60


class SourceRow(NamedTuple):
    """A row as the source holds it. ``place`` is what a person is told: "row 17", "line 3"."""

    file: Path
    place: str
    values: Mapping[str, Any]
    row: int = 0  # inside the file, from 0
    fault: RowError | None = None  # why the source could not even be read at this place


QuestionOf = Callable[[int, SourceRow], Question]


class SourceReading:
    """Questions of all pools of one source, with the rows that were rejected on the way."""

    def __init__(self) -> None:
        self.rejected: list[RejectedRow] = []
        self._seen: dict[str, SourceRow] = {}

    def questions(
        self, rows: Iterable[SourceRow], question_of: QuestionOf, unique_ids: bool = True
    ) -> tuple[list[Question], int]:
        """The good questions, and how many rows there were.

        ``question_of`` gets the number of the row in this pool, from 0, and raises RowError. A row that
        repeats an id of any pool is rejected, unless ``unique_ids`` is False.
        """
        questions, n_rows = [], 0
        for number, row in enumerate(rows):
            n_rows += 1
            try:
                if row.fault is not None:
                    raise row.fault
                question = question_of(number, row)
                if unique_ids:
                    self._claim(question.question_id, row)
            except RowError as error:
                self.reject(row, error)
            else:
                questions.append(question)
        return questions, n_rows

    def reject(self, row: SourceRow, error: RowError) -> None:
        """Keep the reason why ``row`` is not used."""
        self.rejected.append(RejectedRow(str(row.file), row.place, error.reason, error.remedy))

    def _claim(self, question_id: str, row: SourceRow) -> None:
        earlier = self._seen.setdefault(question_id, row)
        if earlier is not row:
            raise RowError(
                f"the id {shown(question_id)} was already used by {earlier.file.name}, {earlier.place}",
                "Give each question its own id.",
            )


def parquet_source_rows(
    files: Iterable[Path], columns: Collection[str], optional: Collection[str] = ()
) -> Iterator[SourceRow]:
    """The rows of Parquet files, in order, with the named columns alone."""
    for file, row, values in iter_rows(list(files), columns, optional):
        yield SourceRow(file, f"row {row}", values, row)


def parquet_schema(file: Path) -> pa.Schema:
    """The schema of a Parquet file; DataError if it is none."""
    try:
        return schema_of(file)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file} cannot be read as Parquet: {error}. Fetch or write it again.") from None


def require_parquet(dataset: str, root: Path, split: str, raw: str) -> list[Path]:
    """The Parquet files of one split below ``root``; DataError names what was looked for and found."""
    if files := files_of_split(root, split):
        return files
    raise DataError(
        f"data set {dataset!r}: {root} has no Parquet file of the split {split!r} ({split}-*.parquet or "
        f"{split}/*.parquet). Found: {listing(root)}. {raw}"
    )


def folder_named(root: Path, name: str) -> Path:
    """The folder of that name below ``root``; ``root`` itself if there is none."""
    return next((folder for folder in sorted(root.rglob(name)) if folder.is_dir()), root)


def listing(root: Path, limit: int = 8) -> str:
    """What lies in a folder, for a message."""
    names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in root.iterdir())
    return (", ".join(names[:limit]) + (", ..." if len(names) > limit else "")) or "nothing"


def text_of(values: Mapping[str, Any], column: str) -> str:
    """The text in ``column``, which must not be blank. Raises RowError."""
    value = values.get(column)
    if not isinstance(value, str):
        raise RowError(f"{column} is {shown(value)}, not text", f"Give {column} as a string.")
    if not value.strip():
        raise RowError(f"{column} is blank", f"Give every row a {column}.")
    # JSON may carry half of a surrogate pair, which cannot be stored as UTF-8.
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise RowError(f"{column} holds half of a surrogate pair", "Write the text as valid Unicode.")
    return value


def references_of(value: Any, column: str) -> tuple[str, ...]:
    """The accepted answers in a list, without blanks and repetitions, in order. Raises RowError."""
    if not isinstance(value, list):
        raise RowError(f"{column} is {shown(value)}, not a list", f"Give {column} as a list of strings.")
    filled = [item for item in value if not isinstance(item, str) or item.strip()]
    texts = [text_of({column: item}, column) for item in filled]
    found = tuple(dict.fromkeys(text.strip() for text in texts))
    if not found:
        raise RowError(f"{column} has no answer", "Give at least one accepted answer, or leave the row out.")
    return found


def number_of(values: Mapping[str, Any], column: str, below: int | None = None) -> int:
    """The whole number >= 0 in ``column``, also from its digits. Raises RowError."""
    value = values.get(column)
    digits = isinstance(value, str) and value.strip().isascii() and value.strip().isdigit()
    if isinstance(value, bool) or not (isinstance(value, int) or digits):
        raise RowError(f"{column} is {shown(value)}, not a whole number", f"Give {column} as a number >= 0.")
    number = int(str(value))
    if number < 0 or (below is not None and number >= below):
        bound = f"0 to {below - 1}" if below is not None else "0 or more"
        raise RowError(f"{column} is {number}, outside {bound}", "Correct the value, or leave the row out.")
    return number


def shown(value: Any) -> str:
    """A value for a message, cut: it may be long."""
    text = ascii(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."
