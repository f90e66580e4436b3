"""What the table holds of a bucket, for whatever files it is in."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sgpu.scoring.tables import SCORES, Base, committed_rows, digest
from sgpu.scoring.work_files import Bucket, place_of
from sgpu.storage.location import Location

DAY = date(2026, 11, 20)
IDS = [f"request {i}" for i in range(40)]


def scores(ids: list[str], **columns: Any) -> pa.Table:
    told = {"request_id": ids, "content_sha256": [f"c {one}" for one in ids], **columns}
    arrays = [pa.array(told.get(one.name, [None] * len(ids)), one.type) for one in SCORES.schema]
    return pa.Table.from_arrays(arrays, schema=SCORES.schema)


def write(root: Path, name: str, rows: pa.Table, day: str = "2026-11-20") -> tuple[str, str]:
    import pyarrow.parquet as pq

    path = f"date={day}/{name}.parquet"
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, root / path)
    return day, path


def in_bucket(bucket: Bucket) -> set[str]:
    return {one for one in IDS if bucket.holds(place_of(one))}


@pytest.mark.parametrize("written", [1, 2, 4, 16])
def test_a_bucket_is_found_in_files_of_other_numbers_of_buckets(tmp_path: Path, written: int) -> None:
    files = []
    for bucket in (Bucket(number, written) for number in range(written)):
        if own := sorted(in_bucket(bucket)):
            files.append(write(tmp_path, f"{bucket.name}-abc", scores(own)))
    for bucket in (Bucket(number, 4) for number in range(4)):
        own, others = committed_rows(Location.of(tmp_path), Base(tuple(files)), bucket, DAY)
        assert set(own["request_id"].to_pylist()) == in_bucket(bucket)
        assert own.num_rows == len(in_bucket(bucket)) and others.num_rows == 0


def test_files_of_others_are_read_by_every_bucket(tmp_path: Path) -> None:
    base = Base((write(tmp_path, "part-00000-compacted", scores(IDS)),))
    own, _ = committed_rows(Location.of(tmp_path), base, Bucket(1, 4), DAY)
    assert set(own["request_id"].to_pylist()) == in_bucket(Bucket(1, 4))


def test_files_that_cannot_hold_the_bucket_are_not_opened(tmp_path: Path) -> None:
    base = Base((("2026-11-20", f"date=2026-11-20/{Bucket(0, 2).name}-gone.parquet"),))
    own, _ = committed_rows(Location.of(tmp_path), base, Bucket(3, 4), DAY)
    assert own.num_rows == 0


def test_other_days_are_told_apart_from_the_day(tmp_path: Path) -> None:
    files = [
        write(tmp_path, f"{Bucket(0, 1).name}-a", scores(["x"])),
        write(tmp_path, f"{Bucket(0, 1).name}-b", scores(["y"]), "2026-11-19"),
    ]
    own, others = committed_rows(Location.of(tmp_path), Base(tuple(files)), Bucket(0, 1), DAY)
    assert (own["request_id"].to_pylist(), others["request_id"].to_pylist()) == (["x"], ["y"])
    assert others["date"].to_pylist() == ["2026-11-19"]


def test_columns_that_an_older_file_lacks_are_null(tmp_path: Path) -> None:
    older = scores(["x"]).drop_columns(["members", "shadow_std"])
    own, _ = committed_rows(
        Location.of(tmp_path), Base((write(tmp_path, f"{Bucket(0, 1).name}-a", older),)), Bucket(0, 1), DAY
    )
    assert own["members"].to_pylist() == [None] and own["content_sha256"].to_pylist() == ["c x"]


def test_the_digest_tells_content_and_run_but_not_the_order() -> None:
    def of(ids: list[str], **columns: Any) -> str:
        rows = scores(ids, **columns).append_column("date", pa.array(["2026-11-20"] * len(ids)))
        return digest(rows, rows.slice(0, 0))

    assert of(["x", "y"]) == of(["y", "x"])
    assert of(["x"]) != of(["y"]) != of(["x", "y"])
    assert of(["x"], run_key=["A"]) != of(["x"], run_key=["B"])
    assert of(["x"], content_sha256=["other"]) != of(["x"])
