"""Labelled images in Parquet files as the Hub has them: the labels are read, the images only named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from sgpu.datasets.checks import expect_columns
from sgpu.datasets.parquet_rows import rows_without_image
from sgpu.datasets.response_rows import RowError
from sgpu.datasets.source_rows import SourceRow, parquet_schema, parquet_source_rows
from sgpu.datasets.sources.class_names import ClassName, names
from sgpu.errors import DataError
from sgpu.judges.normalise import words
from sgpu.storage.parquet_files import opened, row_count

REMEDY = "Fetch the file again."


def labelled_rows(files: Sequence[Path], column: str, classes: Sequence[ClassName]) -> Iterator[SourceRow]:
    """Rows with their ``label``; ``column`` is the image's, whose bytes are not read.

    Raises DataError for absent columns, and if a file says that its labels mean other classes.
    """
    for file in files:
        expect_columns(file, parquet_schema(file).names, ["label", column])
        _check_class_labels(file, classes)
        yield from parquet_source_rows([file], ["label"])


def require_image(row: SourceRow, column: str) -> None:
    """Raise RowError if the row's image cell holds nothing."""
    if row.row in _without_image(row.file, column):
        raise RowError(f"{column} holds no image bytes", REMEDY)


def image_names(files: Sequence[Path], column: str) -> list[str | None]:
    """The file names that the image cells carry, row by row; None where a cell has none."""
    found: list[str | None] = []
    for file in files:
        kind = parquet_schema(file).field(column).type
        if not pa.types.is_struct(kind) or "path" not in [field.name for field in kind]:
            found.extend([None] * row_count(file))
            continue
        cells = opened(file).read(columns=[f"{column}.path"])[column].to_pylist()
        found.extend(
            Path(path).name if path else None for path in ((cell or {}).get("path") for cell in cells)
        )
    return found


@lru_cache(maxsize=4)
def _without_image(file: Path, column: str) -> frozenset[int]:
    return rows_without_image(file, column)


def _check_class_labels(file: Path, classes: Sequence[ClassName]) -> None:
    declared = _declared_names(file)
    same = len(declared) == len(classes) and all(
        words(name) in {words(known) for known in item.references()}
        for name, item in zip(declared, classes, strict=False)
    )
    if declared and not same:
        raise DataError(
            f"{file}: its labels are {', '.join(declared)}; expected {', '.join(names(classes))}, in this "
            "order. The source has changed: fetch the revision that the card names."
        )


def _declared_names(file: Path) -> list[str]:
    """The class names that Hub files carry beside their schema; none if the file does not say."""
    metadata = parquet_schema(file).metadata or {}
    try:
        declared: Any = json.loads(metadata[b"huggingface"])["info"]["features"]["label"]["names"]
    except (KeyError, TypeError, ValueError):
        return []
    return [str(name) for name in declared] if isinstance(declared, list) else []
