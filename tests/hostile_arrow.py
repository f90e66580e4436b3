"""Columns of the type with which Ray Data stores pickled objects; whoever reads a value runs code."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray.data  # noqa: F401 - importing it registers the type for every reader in this process

TYPE = "ray.data.arrow_pickled_object"


class _Touch:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def pickled(marker: Path, rows: int) -> pa.Array:
    """Values that make the file ``marker`` when they are read."""
    from ray.data._internal.object_extensions.arrow import ArrowPythonObjectType

    payload = pickle.dumps(_Touch(marker))
    return pa.ExtensionArray.from_storage(
        ArrowPythonObjectType(), pa.array([payload] * rows, pa.large_binary())
    )


def swapped(table: pa.Table, column: str, marker: Path) -> pa.Table:
    """The table with one of its columns replaced by pickled objects."""
    place = table.column_names.index(column)
    return table.set_column(place, column, pickled(marker, table.num_rows))
