"""Rows that are dealt out by hash come back bucket by bucket, for any number of buckets."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from sgpu.scoring.work_files import (
    Bucket,
    place_of,
    power_of_two,
    read_json,
    read_partitioned,
    write_json,
    write_partitioned,
)
from sgpu.storage.location import Location
from tests.object_store import ObjectStore

KEYS = [f"request {i}" for i in range(300)] + ["", "ü", "\ud800"]


def test_a_place_is_the_head_of_the_sha256() -> None:
    assert place_of("abc") == int(hashlib.sha256(b"abc").hexdigest()[:8], 16)


@pytest.mark.parametrize("of", [1, 2, 8, 128])
def test_every_key_is_in_exactly_one_bucket(of: int) -> None:
    for key in KEYS:
        assert sum(Bucket(number, of).holds(place_of(key)) for number in range(of)) == 1


def test_a_finer_cut_lies_whole_in_a_coarser_one() -> None:
    for key in KEYS:
        [fine] = [b for b in (Bucket(i, 32) for i in range(32)) if b.holds(place_of(key))]
        [coarse] = [b for b in (Bucket(i, 4) for i in range(4)) if b.holds(place_of(key))]
        assert fine.number in coarse.parts(32) and coarse.number in fine.parts(4)
        assert coarse.meets(fine) and fine.meets(coarse)
        assert coarse.covers(fine) and not fine.covers(coarse)


def test_buckets_apart_do_not_meet() -> None:
    assert not Bucket(0, 2).meets(Bucket(2, 4))
    assert not Bucket(0, 2).covers(Bucket(2, 4))


def test_a_file_tells_its_bucket_and_a_foreign_one_tells_none() -> None:
    assert Bucket.in_name(f"{Bucket(3, 16).name}-abc.parquet") == Bucket(3, 16)
    assert Bucket.in_name("part-00000-c000.snappy.parquet") is None


@pytest.mark.parametrize(("wanted", "parts"), [(0, 1), (1, 1), (1.01, 2), (4, 4), (5, 8)])
def test_the_number_of_buckets_is_rounded_up(wanted: float, parts: int) -> None:
    assert power_of_two(wanted) == parts


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
    write_partitioned(file, table(rows))
    buckets = [Bucket(number, of) for number in range(of)]
    found = [read_partitioned(file, bucket) for bucket in buckets]
    for bucket, part in zip(buckets, found, strict=True):
        assert all(bucket.holds(place_of(key)) for key in part["key"].to_pylist())
    assert pa.concat_tables(found).sort_by("key").equals(table(rows).sort_by("key"))


def test_no_rows_can_be_dealt_too(tmp_path: Path) -> None:
    file = Location.of(tmp_path / "rows.arrow")
    write_partitioned(file, table(0))
    assert read_partitioned(file, Bucket(0, 4)).num_rows == 0


def test_the_same_in_object_storage(object_store: ObjectStore) -> None:
    file = Location.of(object_store.uri("work/rows.arrow"))
    write_partitioned(file, table(300))
    assert sum(read_partitioned(file, Bucket(i, 2)).num_rows for i in range(2)) == 300
    write_json(file.parent / "done.json", {"rows": 300})
    assert read_json(file.parent / "done.json") == {"rows": 300}


def test_a_marker_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert read_json(Location.of(tmp_path / "none.json")) is None
