"""From a source's files to its questions: what a source must be, and how its rows become questions.

The options that a study file gives are checked before the source is opened, the columns and the number of
rows that its card names before its rows are used. A row that cannot become a question is rejected with its
reason. Parquet files as Hub data sets store them are read without the bytes of their images.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from sgpu.datasets.base import DatasetCard, LoadRequest, Question, RejectedRow, Source
from sgpu.datasets.fields import RowError, quote
from sgpu.datasets.image_files import ParquetImage
from sgpu.errors import DataError, UsageError
from sgpu.registry import unknown_name
from sgpu.storage.parquet_files import opened

BATCH_ROWS = 1024
IMAGES = 16  # rows at a time where images are read


class SourceOptions(BaseModel):
    """What a study file may choose of a data set; without fields, for one that has nothing to choose."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Options = TypeVar("Options", bound=SourceOptions)


class DatasetRow(NamedTuple):
    """A row as the source holds it. ``position`` is what a person is told: "row 17", "line 3"."""

    file: Path
    position: str
    values: Mapping[str, Any]
    row: int = 0  # inside the file, from 0
    fault: RowError | None = None  # why the source cannot be used at this place, whatever its values


QuestionOf = Callable[[int, DatasetRow], Question]


class SourceReading:
    """State of reading one source: what was asked for, the ids used so far and the rejected rows."""

    def __init__(self, card: DatasetCard, request: LoadRequest) -> None:
        self.card, self._request = card, request
        self.rejected: list[RejectedRow] = []
        self.rows: dict[str, DatasetRow] = {}  # by the id of the question that each gave

    @classmethod
    def without_options(cls, card: DatasetCard, request: LoadRequest) -> SourceReading:
        """Begin to read a source that has nothing to choose. Raises UsageError for any option."""
        reading = cls(card, request)
        reading.options(SourceOptions)
        return reading

    def options(self, options: type[Options]) -> Options:
        """Return the given options, checked by `read_options`."""
        return read_options(self.card.name, options, self._request.options)

    @property
    def root(self) -> Path:
        """The folder that holds the source's files; DataError says what to put there."""
        root = self._request.root
        if root is None:
            raise self.fault("it needs `path`, a folder with its files")
        if not root.is_dir():
            raise self.fault(f"{root} is not a folder")
        return root

    def parquet_files(self, root: Path, split: str) -> list[Path]:
        """Return the Parquet files of one split below ``root``. DataError says what it expects and found."""
        if files := files_of_split(root, split):
            return files
        raise self.lacks(
            root, f"no Parquet file of the split {split!r} ({split}-*.parquet or {split}/*.parquet)"
        )

    def fault(self, text: str) -> DataError:
        """Return the error that names the data set, says ``text`` and tells which files to put where."""
        return DataError(f"data set {self.card.name!r}: {text}. {self.card.raw}")

    def lacks(self, root: Path, files: str) -> DataError:
        """Return the error for a ``root`` that has ``files`` instead of the files that the card names."""
        return self.fault(f"{root} has {files}. Found: {listing(root)}")

    def expect_rows(self, name: str, n_rows: int, expected: int) -> None:
        """Raise DataError that names both numbers unless they are equal or the request does not mind."""
        if self._request.check_rows and n_rows != expected:
            raise DataError(
                f"data set {self.card.name!r}: {name} has {n_rows} rows, expected {expected}. The source has "
                "changed or the download is not complete: fetch it again, or set `check_rows: false` to take "
                "it as it is."
            )

    def pool(
        self,
        pool: str,
        rows: Iterable[DatasetRow],
        question_of: QuestionOf,
        *,
        name: str = "",
        unique_ids: bool = True,
    ) -> list[Question]:
        """Return the good questions of a pool. The card says how many rows it has.

        ``question_of`` gets the number of the row in this pool, from 0, and raises RowError. A row that
        repeats an id of any pool is rejected, unless ``unique_ids`` is False. ``name`` is what an error about
        the number of rows calls the pool.
        """
        n_rejected = len(self.rejected)
        questions = self.questions(rows, question_of, unique_ids)
        n_rows = len(questions) + len(self.rejected) - n_rejected
        self.expect_rows(name or pool, n_rows, self.card.pools[pool])
        return questions

    def questions(
        self, rows: Iterable[DatasetRow], question_of: QuestionOf, unique_ids: bool = True
    ) -> list[Question]:
        """Return the good questions of rows, as `pool` does, but of any number of rows."""
        questions = []
        for number, row in enumerate(rows):
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
        return questions

    def reject(self, row: DatasetRow, error: RowError) -> None:
        """Keep the reason why ``row`` is not used."""
        self.rejected.append(RejectedRow(str(row.file), row.position, error.reason, error.remedy))

    def source(
        self, pools: dict[str, list[Question]], notes: Iterable[str] = (), revision: str | None = None
    ) -> Source:
        """Return what was read, with the provenance that the card states."""
        card, rejected = self.card, tuple(self.rejected)
        revision = self._request.revision if revision is None else revision
        return Source(card.name, revision, card.licence, card.citation, pools, rejected, tuple(notes))

    def _claim(self, question_id: str, row: DatasetRow) -> None:
        earlier = self.rows.setdefault(question_id, row)
        if earlier is not row:
            raise RowError(
                f"the id {quote(question_id)} was already used by {earlier.file}, {earlier.position}",
                "Give each question its own id.",
            )


def read_options(dataset: str, settings: type[Options], options: Mapping[str, Any]) -> Options:
    """The options as ``settings``. Raises UsageError that names each key at fault and the keys that exist."""
    try:
        return settings(**options)
    except ValidationError as error:
        faults = "; ".join(_fault(dict(entry), list(settings.model_fields)) for entry in error.errors())
        names = ", ".join(settings.model_fields) or "none"
        raise UsageError(f"data set {dataset!r}: {faults}. Settings: {names}.") from error


def _fault(entry: Mapping[str, Any], names: list[str]) -> str:
    where = ".".join(map(str, entry["loc"]))
    if entry["type"] == "extra_forbidden":
        return unknown_name("option", where, names).rstrip(".")
    return f"{where}: {entry['msg']}"


def expect_columns(file: Path | str, columns: Collection[str], wanted: Collection[str]) -> None:
    """Raise DataError that names both if a column that the loader reads is not there."""
    absent = sorted(set(wanted) - set(columns))
    if absent:
        raise DataError(
            f"{file} has no column {', '.join(absent)}. Expected {', '.join(sorted(wanted))}; "
            f"found {', '.join(sorted(columns)) or 'none'}. The source may have changed: fetch the revision "
            "that the card names, or correct the file."
        )


def folder_named(root: Path, name: str) -> Path:
    """The folder of that name below ``root``; ``root`` itself if there is none."""
    return next((folder for folder in sorted(root.rglob(name)) if folder.is_dir()), root)


def listing(root: Path, limit: int = 8) -> str:
    """What lies in a folder, for a message."""
    names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in root.iterdir())
    return (", ".join(names[:limit]) + (", ..." if len(names) > limit else "")) or "nothing"


def files_of_split(root: Path, *splits: str) -> list[Path]:
    """Parquet files below ``root`` of the first of ``splits`` that has any, in the order of their names.

    Both Hub layouts count: ``data/train-00000-of-00002-….parquet`` and ``default/train/0000.parquet``.
    """
    parquet_files = sorted(root.rglob("*.parquet"), key=lambda file: file.relative_to(root).as_posix())
    for split in splits:
        named = re.compile(re.escape(split) + r"([-_.].*)?\.parquet")
        files = [file for file in parquet_files if named.fullmatch(file.name) or file.parent.name == split]
        if files:
            return files
    return []


def parquet_source_rows(
    files: Iterable[Path],
    columns: Collection[str],
    optional: Collection[str] = (),
    unread: Collection[str] = (),
    image: str | None = None,
) -> Iterator[DatasetRow]:
    """Yield the rows of Parquet files, in order, with ``columns`` alone.

    Columns in ``optional`` are read where a file has them; those in ``unread`` must exist and are not read.
    Neither are the bytes of ``image``: a row has a reference to its image there, None if its cell holds none,
    and under "image_name" the file name that the cell carries, None if it carries none. Raises DataError for
    a file that is not Parquet or is cut off, and for an absent column, with the columns expected and found.
    """
    for file in files:
        parquet = _open(file, {*columns, *unread, *([image] if image else [])})
        schema = parquet.schema_arrow
        wanted = [name for name in schema.names if name in columns or name in optional]
        absent = rows_without_image(file, image) if image else frozenset()
        if image and _has_path(schema.field(image).type):
            wanted.append(f"{image}.path")
        with _readable(file):
            batches = parquet.iter_batches(batch_size=BATCH_ROWS, columns=wanted)
            records = (record for batch in batches for record in batch.to_pylist())
            for row, record in enumerate(records):
                if image:
                    path = (record.get(image) or {}).get("path")
                    record["image_name"] = Path(path).name if path and isinstance(path, str) else None
                    record[image] = None if row in absent else ParquetImage(file, row, image)
                yield DatasetRow(file, f"row {row}", record, row)


def _has_path(image: pa.DataType) -> bool:
    return pa.types.is_struct(image) and "path" in [field.name for field in image]


def parquet_schema(file: Path) -> pa.Schema:
    """The schema of a Parquet file; DataError if it cannot be read."""
    return _open(file, ()).schema_arrow


def rows_without_image(file: Path, column: str = "image") -> frozenset[int]:
    """Indices of the rows whose image cell has no bytes.

    Row groups without a null by their statistics are not read, so that gigabytes of images stay on disk.
    Raises DataError for a file that cannot be read or has no such column.
    """
    parquet = _open(file, {column})
    is_struct = pa.types.is_struct(parquet.schema_arrow.field(column).type)
    leaf = f"{column}.bytes" if is_struct else column
    absent: set[int] = set()
    first = 0
    for group in range(parquet.metadata.num_row_groups):
        metadata = parquet.metadata.row_group(group)
        if not _without_nulls(metadata, leaf):
            with _readable(file):
                batches = parquet.iter_batches(batch_size=IMAGES, row_groups=[group], columns=[leaf])
                cells = (cell for batch in batches for cell in batch.column(0).to_pylist())
                present = ((cell or {}).get("bytes") if is_struct else cell for cell in cells)
                absent |= {first + index for index, data in enumerate(present) if not data}
        first += metadata.num_rows
    return frozenset(absent)


def _open(file: Path, columns: Collection[str]) -> Any:
    with _readable(file):
        parquet = opened(file)
    expect_columns(file, parquet.schema_arrow.names, columns)
    return parquet


def _without_nulls(metadata: Any, leaf: str) -> bool:
    chunks = (metadata.column(index) for index in range(metadata.num_columns))
    statistics = next((chunk.statistics for chunk in chunks if chunk.path_in_schema == leaf), None)
    if statistics is None or not statistics.has_null_count or statistics.null_count:
        return False
    # Large values have no minimum; where there is one, an empty cell is the smallest.
    return not statistics.has_min_max or bool(statistics.min)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as Parquet: {error}. Fetch or write it again.") from None
