"""Queries over the rows of a day by their keys, in DuckDB, which spills to disk; never over texts.

Each query is a file of `queries/`, which can be read and run by itself. Nothing of the outside is in reach of
them: rows come as Arrow from our own readers, and values as parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa

from sgpu.provenance import available_cores
from sgpu.storage.location import Location

MEMORY = "1GB"
BATCH_ROWS = 10_000


class Relations:
    """A database of one run, in memory and beyond `MEMORY` in ``folder``; gone with the run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = TemporaryDirectory(prefix="relations-", dir=folder, ignore_cleanup_errors=True)
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": MEMORY,
                "temp_directory": self._folder.name,
                "threads": available_cores(),
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
                "preserve_insertion_order": False,  # needs memory; queries say which order they want
            },
        )
        # Only now: its own folder has to be named before.
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    @property
    def folder(self) -> Location:
        """For what goes with this database; no other run sees it."""
        return Location.of(self._folder.name)

    def run(self, query: str) -> Iterator[pa.Table]:
        """The rows of a query as they come, in pieces."""
        with self._connection.cursor() as cursor:  # so that another query may begin meanwhile
            result = cursor.execute(_statement(query))
            for batch in result.to_arrow_reader(BATCH_ROWS):
                yield pa.Table.from_batches([batch])

    def rows(self, query: str) -> Iterator[dict[str, Any]]:
        """The rows of a query, each as a dictionary."""
        for part in self.run(query):
            yield from part.to_pylist()

    def make(self, query: str) -> None:
        """Run a query for what it leaves in the database."""
        self._connection.execute(_statement(query))

    def schema(self, table: str) -> pa.Schema:
        """The columns of a table of `queries/tables.sql`, as Arrow has them."""
        return self._connection.table(table).limit(0).to_arrow_table().schema

    def add(self, table: str, rows: Rows | Iterable[Mapping[str, Any]]) -> None:
        """Add rows to a table, by the names of its columns; what a row does not name is null."""
        if not isinstance(rows, Rows):
            schema = self.schema(table)
            rows = Rows(schema, [pa.Table.from_pylist(list(rows), schema=schema)])
        with self._connection.cursor() as cursor:
            cursor.register("source", rows.reader())
            cursor.execute(f"INSERT INTO {table} BY NAME FROM source")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._folder.cleanup()


def _statement(query: str) -> str:
    return (files(__package__) / "queries" / f"{query}.sql").read_text("utf-8")


class Rows:
    """Tables of one schema, which a query reads once and as it needs them."""

    def __init__(self, schema: pa.Schema, parts: Iterable[pa.Table]) -> None:
        self.schema, self._parts = schema, parts

    def __iter__(self) -> Iterator[pa.Table]:
        return iter(self._parts)

    def reader(self) -> Any:
        """As Arrow's own reader."""
        batches = (batch for part in self._parts for batch in part.select(self.schema.names).to_batches())
        return pa.RecordBatchReader.from_batches(self.schema, batches)
