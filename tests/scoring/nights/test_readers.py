"""The committed tables as other programs read them, each with a Delta reader of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import files
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.scoring.nights import nights
from tests.scoring.nights.nights import arrow, night, row, rows, write


def by_duckdb(table: Path) -> pa.Table:
    extension = next(
        file for file in files("duckdb-extension-delta") or () if file.suffix == ".duckdb_extension"
    )
    with duckdb.connect() as connection:
        connection.load_extension(str(extension.locate()))
        return connection.sql(
            "SELECT * FROM delta_scan($table)", params={"table": str(table)}
        ).to_arrow_table()


def by_polars(table: Path) -> pa.Table:
    return pl.scan_delta(str(table)).collect().to_arrow()


@pytest.fixture
def two_nights(place: Path) -> Path:
    """A table of several commits, where some files of the folders are no part of it."""
    write(place / "logs", "a.jsonl", rows(range(20)))
    night(place)
    write(place / "logs", "b.jsonl", ["{broken", *rows(range(20, 30)), row("alone", ["x"])])
    night(place)
    written = next((place / "out" / "scores").glob("date=*/*/*.parquet"))
    written.with_name("nobodys.parquet").write_bytes(written.read_bytes())
    return place


@pytest.mark.parametrize("read", [by_duckdb, by_polars])
@pytest.mark.parametrize("table", ["scores", "quarantine"])
def test_another_reader_finds_the_same_rows(
    two_nights: Path, table: str, read: Callable[[Path], pa.Table]
) -> None:
    wanted, found = arrow(two_nights, table), read(two_nights / "out" / table)
    assert set(found.column_names) == set(wanted.column_names)
    assert found.num_rows == wanted.num_rows == {"scores": 30, "quarantine": 2}[table]
    assert in_order(found.select(wanted.column_names)) == in_order(wanted)


def in_order(rows: pa.Table) -> list[str]:
    # To the microsecond, whatever a reader calls the zone UTC.
    return sorted(json.dumps(one, default=lambda time: time.timestamp()) for one in rows.to_pylist())


@pytest.mark.parametrize("table", ["scores", "quarantine"])
def test_the_table_asks_for_no_feature_that_an_old_reader_lacks(two_nights: Path, table: str) -> None:
    protocol = DeltaTable(str(two_nights / "out" / table)).protocol()
    assert (protocol.min_reader_version, protocol.reader_features) == (1, None)


def test_an_earlier_version_is_read_as_it_was(two_nights: Path) -> None:
    table = two_nights / "out" / "scores"
    heights = {
        pl.scan_delta(str(table), version=version).collect().height
        for version in range(1 + nights.versions(two_nights))
    }
    assert {0, 20, 30} <= heights
