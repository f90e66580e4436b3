"""A table whose log or folder was tampered with leads nowhere outside of itself."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from sgpu.errors import IntegrityError
from sgpu.scoring.publish import DayTables
from sgpu.scoring.tables import DATE, SCORES
from sgpu.scoring.vacuum import vacuum_table
from sgpu.storage.delta_log import open_or_create
from sgpu.storage.location import Location
from sgpu.storage.store import Partition, Store
from sgpu.storage.tables import QUESTIONS

OUTSIDE = [
    "../victim.parquet",
    "%2e%2e/victim.parquet",
    "..%2fvictim.parquet",
    "{root}/victim.parquet",
    "file://{root}/victim.parquet",
]
LONG_AGO = 1_000_000_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A score table in out/; beside it lies an old file that is none of its business."""
    folder = Location.of(tmp_path / "out") / SCORES.name
    open_or_create(folder, SCORES.schema)
    victim = folder.local.parent / "victim.parquet"
    pq.write_table(pa.table({"request_id": ["not ours"]}), victim)
    os.utime(victim, (LONG_AGO, LONG_AGO))
    return folder.local


def commit(table: Path, action: dict[str, object]) -> None:
    """Append to the log what no writer of ours would."""
    number = DeltaTable(str(table)).version() + 1
    (table / "_delta_log" / f"{number:020d}.json").write_text(json.dumps(action))


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_log_that_names_a_file_outside_reads_nothing_from_there(path: str, table: Path) -> None:
    victim = table.parent / "victim.parquet"
    add = {"path": path.format(root=table.parent), "partitionValues": {}, "size": victim.stat().st_size}
    commit(table, {"add": {**add, "modificationTime": 1, "dataChange": True}})
    with pytest.raises(OSError, match=r"not found|No such file"):
        DeltaTable(str(table)).to_pyarrow_table()


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_log_that_removes_a_file_outside_makes_vacuum_delete_nothing_there(path: str, table: Path) -> None:
    remove = {"path": path.format(root=table.parent), "deletionTimestamp": 1, "dataChange": True}
    commit(table, {"remove": remove})
    vacuum_table(table.parent, 24)
    assert (table.parent / "victim.parquet").exists()


def test_vacuum_does_not_go_through_a_link_out_of_the_table(table: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    os.utime(elsewhere / "kept", (LONG_AGO, LONG_AGO))
    (table / "link").symlink_to(elsewhere)
    with pytest.raises(IntegrityError, match="is a link"):
        vacuum_table(table.parent, 24)
    assert (elsewhere / "kept").exists()


def test_a_file_that_is_not_of_the_size_in_the_log_is_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    partition = Partition.of(dataset="d")
    rows = {
        "question_id": ["a"],
        "question": ["?"],
        "split": ["test"],
        "references": [["x"]],
        "position": [0],
    }
    columns = [pa.array(rows.get(field.name, [None]), field.type) for field in QUESTIONS.schema]
    published = store.write(QUESTIONS, partition, pa.table(columns, schema=QUESTIONS.schema), "k" * 64, {})
    [file] = map(Path, published.files)
    size = file.stat().st_size
    pq.write_table(pq.read_table(file).append_column("more", pa.array(["m"])), file)
    with pytest.raises(IntegrityError, match=rf"{file} has \d+ bytes, but {size} in the log"):
        Store(tmp_path).require("questions", partition)


def test_scores_that_are_not_of_the_size_in_the_log_are_not_compared_with(tmp_path: Path) -> None:
    folder = Location.of(tmp_path / "out") / SCORES.name
    open_or_create(folder, SCORES.schema.append(pa.field(DATE, pa.string())), (DATE,))
    table = folder.local
    file = table / "date=2026-11-20" / "scores.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"request_id": ["a"]}), file)
    add = {"path": "date=2026-11-20/scores.parquet", "partitionValues": {"date": "2026-11-20"}, "size": 1}
    commit(table, {"add": {**add, "modificationTime": 1, "dataChange": True}})
    day = date(2026, 11, 20)
    with pytest.raises(IntegrityError, match=rf"{file} has \d+ bytes, but 1 in the log"):
        DayTables(Location.of(table.parent), day).base([day])
