"""Records of a response file, each with the line it came from: raw, checked, and what was wrong with others.

Reads JSON Lines (`.jsonl`, `.ndjson`, plain or with `.gz` or `.zst`) and Parquet (`.parquet`). Whatever
makes the file as a whole unreadable raises DataError; a line that is not JSON is handed on as a fault. A
record is typed, or refused with a reason and a remedy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgpu.datasets.base import RejectedRow
from sgpu.datasets.fields import (
    RowError,
    check_label,
    check_text,
    choice_of,
    id_of,
    list_of,
    quote,
    require_text,
)
from sgpu.datasets.source_rows import DatasetRow, parquet_schema, parquet_source_rows
from sgpu.errors import DataError
from sgpu.storage.json_lines import (
    BROKEN,
    BYTE_ORDER_MARK,
    MAX_LINE_BYTES,
    FileKind,
    kind_of,
    lines_in,
    parsed_json,
    unpacked,
)

MIN_ANSWERS = 2
SPLITS = ("train", "validation", "test")
REQUIRED = ("question_id", "question", "answers")
OPTIONAL = ("references", "token_logprobs", "label", "split", "group")
CONVERSIONS = {
    ".csv": " To convert one answer per row: polars.read_csv({path!r}).group_by('question_id', 'question', "
    "maintain_order=True).agg(answers='answer').write_ndjson({target!r})",
    ".json": " To convert a JSON array: polars.read_json({path!r}).write_ndjson({target!r})",
}
ONE_OBJECT = "Write one JSON object per line."
JSON_LINES = tuple(kind + packed for kind in (".jsonl", ".ndjson") for packed in ("", ".gz", ".zst"))


def check_file(path: Path) -> None:
    """Raise DataError if there is no file at ``path``, or it is empty or of a kind that is not read."""
    if not path.is_file():
        raise DataError(f"{path}: no such file. Give a JSON Lines or Parquet file of responses.")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty (0 bytes). Write one record per question.")
    if path.suffix != ".parquet" and not path.name.lower().endswith(JSON_LINES):
        names = {"path": str(path), "target": str(path.with_suffix(".jsonl"))}
        conversion = CONVERSIONS.get(path.suffix.lower(), "").format(**names)
        raise DataError(
            f"{path}: this kind of file is not read. Give JSON Lines or Parquet: a name that ends with "
            f"{', '.join((*JSON_LINES, '.parquet'))}.{conversion}"
        )


class RowFile:
    """Rows of a file; iterate to read them. DataError names file, place and remedy.

    ``columns``: names of all columns that were found so far; of a Parquet file only those in ``wanted`` are
    read. A line that is not a JSON object is a row with a fault.
    """

    def __init__(self, path: Path, wanted: Collection[str]) -> None:
        check_file(path)
        self.path, self.columns, self._wanted = path, set[str](), wanted

    def __iter__(self) -> Iterator[DatasetRow]:
        if self.path.suffix == ".parquet":
            names = parquet_schema(self.path).names
            self.columns.update(names)
            image = "image" if "image" in names and "image" in self._wanted else None
            columns = set(self._wanted) - {image}
            yield from parquet_source_rows([self.path], (), optional=columns, image=image)
            return
        for row in self._json_rows():
            self.columns.update(row.values)
            yield row

    def _json_rows(self) -> Iterator[DatasetRow]:
        offset, n_rows = 0, 0
        for line, raw in enumerate(_lines(self.path), start=1):
            try:
                text = raw.decode("utf-8").removeprefix(BYTE_ORDER_MARK if line == 1 else "").strip()
            except UnicodeDecodeError as error:
                place = f"byte 0x{raw[error.start]:02x} at byte offset {offset + error.start}, line {line}"
                raise DataError(f"{self.path}: not UTF-8: {place}. Convert the file to UTF-8.") from error
            offset += len(raw) + 1
            if text:
                yield _parsed(DatasetRow(self.path, f"line {line}", {}, n_rows), text)
                n_rows += 1


def _lines(path: Path) -> Iterator[bytes]:
    line = 0
    try:
        with path.open("rb") as stream:
            for item in lines_in(unpacked(stream, kind_of(path.name) or FileKind.LINES)):
                line += 1
                if item.raw is None:
                    break
                yield item.raw
            else:
                return
    except BROKEN as error:
        raise DataError(
            f"{path}: cannot be read after line {line}: {error}. The file may be cut short; write it again."
        ) from error
    raise DataError(f"{path}: line {line} is longer than {MAX_LINE_BYTES} bytes. Write one record a line.")


def _parsed(row: DatasetRow, text: str) -> DatasetRow:
    try:
        record = parsed_json(text)
    except (ValueError, RecursionError) as error:
        return row._replace(fault=RowError(f"the line is not JSON: {error}", ONE_OBJECT))
    if not isinstance(record, dict):
        reason = f"the line is a JSON {type(record).__name__}, not an object"
        return row._replace(fault=RowError(reason, ONE_OBJECT))
    return row._replace(values=record)


@dataclass(frozen=True)
class ResponseRow:
    """A checked record; equal content compares equal. ``label`` None: not given."""

    question_id: str
    question: str
    answers: tuple[str, ...]
    references: tuple[str, ...] = ()
    token_logprobs: tuple[tuple[float, ...], ...] | None = None
    label: int | None = None
    split: str | None = None
    group: str | None = None


def parse_row(record: Mapping[str, Any]) -> ResponseRow:
    """The typed row of a raw record; columns that are not known are ignored. Raises RowError."""
    answers = _texts(record, "answers")
    if len(answers) < MIN_ANSWERS:
        raise RowError(
            f"answers has {len(answers)} entries, below {MIN_ANSWERS}",
            "Sample several answers to each question; agreement needs at least two.",
        )
    return ResponseRow(
        question_id=id_of(record, "question_id"),
        question=require_text(record, "question"),
        answers=answers,
        references=_texts(record, "references") if record.get("references") is not None else (),
        token_logprobs=_logprobs(record.get("token_logprobs"), len(answers)),
        label=check_label(record.get("label")),
        split=choice_of(record, "split", SPLITS),
        group=id_of(record, "group") if record.get("group") is not None else None,
    )


def _texts(record: Mapping[str, Any], column: str) -> tuple[str, ...]:
    values = list_of(record.get(column), column)
    return tuple(check_text(value, f"{column}[{i}]", allow_blank=True) for i, value in enumerate(values))


def _logprobs(value: Any, n_answers: int) -> tuple[tuple[float, ...], ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(tokens, list) for tokens in value):
        raise RowError(
            f"token_logprobs is {quote(value)}, not a list of lists", "Give one list of numbers per answer."
        )
    if len(value) != n_answers:
        raise RowError(
            f"token_logprobs has {len(value)} lists for {n_answers} answers", "Give one list per answer."
        )
    return tuple(
        tuple(_logprob(token, f"token_logprobs[{i}][{j}]") for j, token in enumerate(tokens))
        for i, tokens in enumerate(value)
    )


def _logprob(value: Any, name: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Rounding may lift a log-probability of 0 a little; NaN is below no bound.
    if not number or not abs(value) < 1e30 or value > 1e-3:
        raise RowError(
            f"{name} is {quote(value)}, not a finite number <= 0",
            "Give natural-log probabilities of the sampled tokens.",
        )
    return min(float(value), 0.0)


class ResponseReading:
    """One pass over the file: the good rows by id, the quarantined ones, and the counts."""

    def __init__(self, path: Path) -> None:
        self._good: dict[str, tuple[ResponseRow, DatasetRow]] = {}  # with its place, without the values
        self._rejected: dict[int, RejectedRow] = {}
        self.n_duplicates = 0
        self.n_rows = 0
        file = RowFile(path, (*REQUIRED, *OPTIONAL))
        for row in file:
            self.n_rows += 1
            self._take(row)
        self.columns = file.columns
        absent = [column for column in REQUIRED if column not in self.columns]
        if self.n_rows == 0 or (absent and self.columns):
            fault = f"has no column {', '.join(map(repr, absent))}" if self.columns else "has no rows"
            columns = ", ".join(sorted(self.columns)) or "none"
            raise DataError(f"{path}: {fault}. Needed: {', '.join(REQUIRED)}. Found: {columns[:300]}.")

    @property
    def quarantined(self) -> list[RejectedRow]:
        """Rows that are not used, in the order of the file."""
        return [self._rejected[row] for row in sorted(self._rejected)]

    @property
    def unused_columns(self) -> tuple[str, ...]:
        """Columns of the file that no record has a use for, by name."""
        return tuple(sorted(self.columns - {*REQUIRED, *OPTIONAL}))

    def rows(self, n: int | None, *, any_count: bool) -> tuple[dict[str, ResponseRow], int]:
        """The good rows by id, and ``n``, or the most common count.

        They are cut to as many answers, and shorter ones quarantined; with ``any_count`` they have them all.
        """
        counts = Counter(len(row.answers) for row, _ in self._good.values())
        chosen = n or min(counts, key=lambda count: (-counts[count], count), default=MIN_ANSWERS)
        usable = {question_id: row for question_id, (row, _) in self._good.items()}
        if not any_count:
            usable = {question_id: _first_answers(row, chosen) for question_id, row in usable.items()}
            for question_id, row in [(key, row) for key, row in usable.items() if len(row.answers) < chosen]:
                reason = f"answers has {len(row.answers)} entries, below the {chosen} of this cell"
                remedy = "Sample the rest, or set n to a smaller number for all rows."
                self._take_out(usable, question_id, RowError(reason, remedy))
        # One row without a split among rows that have one: its side is not ours to choose.
        if any(row.split for row in usable.values()):
            for question_id in [key for key, row in usable.items() if row.split is None]:
                error = RowError("split is missing while other rows have one", "Give every row a split.")
                self._take_out(usable, question_id, error)
        return usable, chosen

    def _take_out(self, usable: dict[str, ResponseRow], question_id: str, error: RowError) -> None:
        self._reject(self._good[question_id][1], error)
        del usable[question_id]

    def _take(self, row: DatasetRow) -> None:
        try:
            if row.fault is not None:
                raise row.fault
            response = parse_row(row.values)
            same_id, earlier = self._good.setdefault(
                response.question_id, (response, row._replace(values={}))
            )
            if same_id is response:
                return
            if same_id != response:
                raise RowError(
                    f"question_id was already used by {earlier.position} with other content",
                    "Give each response set its own question_id.",
                )
            self.n_duplicates += 1
        except RowError as error:
            self._reject(row, error)

    def _reject(self, row: DatasetRow, error: RowError) -> None:
        self._rejected[row.row] = RejectedRow(str(row.file), row.position, error.reason, error.remedy)


def _first_answers(row: ResponseRow, n: int) -> ResponseRow:
    logprobs = row.token_logprobs[:n] if row.token_logprobs is not None else None
    return replace(row, answers=row.answers[:n], token_logprobs=logprobs)
