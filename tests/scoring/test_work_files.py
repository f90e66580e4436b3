"""Rows that are dealt out by hash come back bucket by bucket, for any number of buckets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sgpu.scoring.buckets import Bucket, place_of
from sgpu.scoring.work_files import read_dealt, read_json, write_dealt, write_json
from sgpu.storage.location import Location
from tests.object_store import ObjectStore


def table(n: int) -> pa.Table:
    keys = [f"request {i}" for i in range(n)]
    columns = {
        "place": pa.array(map(place_of, keys), pa.uint32()),
        "key": keys,
        "texts": [[key] for key in keys],
    }
    return pa.table(columns)


@pytest.mark.parametrize("rows", [1, 63, 1000])
@pytest.mark.parametrize("of", [1, 4, 64])
def test_every_row_comes_back_in_its_bucket(tmp_path: Path, rows: int, of: int) -> None:
    file = Location.of(tmp_path / "x" / "rows.arrow")
    write_dealt(file, table(rows))
    buckets = [Bucket(number, of) for number in range(of)]
    found = [read_dealt(file, bucket) for bucket in buckets]
    for bucket, part in zip(buckets, found, strict=True):
        assert all(bucket.holds(place_of(key)) for key in part["key"].to_pylist())
    assert pa.concat_tables(found).sort_by("key").equals(table(rows).sort_by("key"))


def test_no_rows_can_be_dealt_too(tmp_path: Path) -> None:
    file = Location.of(tmp_path / "rows.arrow")
    write_dealt(file, table(0))
    assert read_dealt(file, Bucket(0, 4)).num_rows == 0


def test_the_same_in_object_storage(object_store: ObjectStore) -> None:
    file = Location.of(object_store.uri("work/rows.arrow"))
    write_dealt(file, table(300))
    assert sum(read_dealt(file, Bucket(i, 2)).num_rows for i in range(2)) == 300
    write_json(file.parent / "done.json", {"rows": 300})
    assert read_json(file.parent / "done.json") == {"rows": 300}


def test_a_marker_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert read_json(Location.of(tmp_path / "none.json")) is None
