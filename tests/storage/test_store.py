from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

import sgpu.storage.store as store_module
from sgpu.errors import StageError, UsageError
from sgpu.storage.delta_log import on_disk, open_or_create
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import row_count, write_rows
from sgpu.storage.store import Partition, Published, Store, fingerprint
from sgpu.storage.tables import METRICS, spectra_table
from tests.object_store import ObjectStore

PARTITION = Partition.of(model="m", dataset="d", encoder="e")


def _spectra(n: int, rows: int) -> pa.Table:
    return pa.table(
        {
            "question_id": [f"q{i}" for i in range(rows)],
            "status": ["ok"] * rows,
            "error": [None] * rows,
            "encoder_dtype": ["float32"] * rows,
            "n": [n] * rows,
            "eigenvalues": [[float(n)] + [0.0] * (n - 1)] * rows,
            "cosines": [[0.5] * (n * (n - 1) // 2)] * rows,
            "prefixes": [None] * rows,
            "prefix_eigenvalues": [None] * rows,
            "n_distinct": [1] * rows,
        },
        schema=spectra_table(n).schema,
    )


def files_of(published: Published) -> dict[Location, int]:
    return {Location.of(file): row_count(file) for file in published.files}


def staged(store: Store, partition: Partition, key: str, sizes: Sequence[int]) -> dict[Location, int]:
    """Files that a stage has written and checked, each with its rows."""
    folder = store.staging("spectra", partition, key)
    folder.make_folder()
    files = {folder / f"part-{i}.parquet": rows for i, rows in enumerate(sizes)}
    for file, rows in files.items():
        write_rows(file, _spectra(3, rows).cast(on_disk(spectra_table(3).schema)))
    return files


def test_fingerprint_ignores_key_order() -> None:
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": [1, 2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})


def test_nothing_is_published_before_the_first_commit(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.published("spectra", PARTITION) is None
    with pytest.raises(StageError, match="run the stage before"):
        store.require("spectra", PARTITION)


def test_publishing_the_same_fingerprint_twice_commits_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    key = fingerprint({"a": 1})
    first = store.write(spectra_table(3), PARTITION, _spectra(3, 4), key, {})
    assert store.publish(spectra_table(3), PARTITION, key, {}, files_of(first)) == "noop"
    again = store.require("spectra", PARTITION)
    assert (again.version, again.rows) == (first.version, 4)


def test_a_file_that_came_after_the_check_is_not_published(tmp_path: Path) -> None:
    store, key = Store(tmp_path), fingerprint({})
    files = staged(store, PARTITION, key, [2, 3])
    late = store.staging("spectra", PARTITION, key) / "part-late.parquet"
    write_rows(late, _spectra(3, 4).cast(on_disk(spectra_table(3).schema)))
    store.publish(spectra_table(3), PARTITION, key, {}, files)
    found = store.require("spectra", PARTITION)
    assert (found.rows, found.read().num_rows, len(found.files)) == (5, 5, 2)


def test_a_checked_file_that_is_gone_stops_the_commit(tmp_path: Path) -> None:
    store, key = Store(tmp_path), fingerprint({})
    files = staged(store, PARTITION, key, [2, 3])
    next(iter(files)).delete()
    with pytest.raises(StageError, match=r"1 files .* are gone .* \(first: part-0.parquet\)"):
        store.publish(spectra_table(3), PARTITION, key, {}, files)
    assert store.published("spectra", PARTITION) is None


@pytest.mark.parametrize("dataset", ["d", "with space", "per%cent", "a=b", "ü"])
def test_rows_are_counted_from_the_log_without_a_look_into_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str
) -> None:
    store, partition = Store(tmp_path), Partition.of(model="m", dataset=dataset, encoder="e")
    store.publish(spectra_table(3), partition, "a" * 64, {}, staged(store, partition, "a" * 64, [2, 3, 4]))
    store.write(spectra_table(3), PARTITION if dataset != "d" else partition, _spectra(3, 1), "b" * 64, {})

    def opened(file: Location) -> int:
        raise AssertionError(f"{file} was opened")

    monkeypatch.setattr(store_module, "row_count", opened)
    assert store.require("spectra", partition).rows == (1 if dataset == "d" else 9)


@pytest.mark.parametrize("folder", ["my runs", "Jürgen", "a#b?c", "100%"])
def test_a_folder_of_any_name_holds_tables(tmp_path: Path, folder: str) -> None:
    store = Store(tmp_path / folder)
    store.write(spectra_table(3), PARTITION, _spectra(3, 4), fingerprint({}), {})
    assert store.require("spectra", PARTITION).read().num_rows == 4


def test_a_folder_that_delta_would_read_as_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="%20 in its name"):
        Store(tmp_path / "a%20b").write(spectra_table(3), PARTITION, _spectra(3, 4), fingerprint({}), {})


def test_rows_are_counted_in_the_files_where_the_log_does_not_say(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish(spectra_table(3), PARTITION, "a" * 64, {}, staged(store, PARTITION, "a" * 64, [2, 3]))
    log = tmp_path / "tables" / "spectra" / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    removed = [line["add"].pop("stats") for line in lines if "add" in line]
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert len(removed) == 2 and store.require("spectra", PARTITION).rows == 5


def test_a_new_fingerprint_replaces_the_partition_and_leaves_others_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    other = Partition.of(model="m", dataset="other", encoder="e")
    store.write(spectra_table(3), PARTITION, _spectra(3, 4), fingerprint({"v": 1}), {})
    store.write(spectra_table(5), other, _spectra(5, 2), fingerprint({"v": 1}), {})
    store.write(spectra_table(3), PARTITION, _spectra(3, 6), fingerprint({"v": 2}), {})
    assert store.require("spectra", PARTITION).rows == 6
    assert store.require("spectra", other).rows == 2


def test_a_pinned_read_survives_a_later_commit(tmp_path: Path) -> None:
    store = Store(tmp_path)
    pinned = store.write(spectra_table(3), PARTITION, _spectra(3, 4), fingerprint({"v": 1}), {})
    store.write(spectra_table(3), PARTITION, _spectra(3, 6), fingerprint({"v": 2}), {})
    assert pinned.read().num_rows == 4


def test_concurrent_publishers_leave_every_row_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    partitions = [Partition.of(model="m", dataset=f"d{i % 3}", encoder="e") for i in range(9)]

    def write(partition: Partition) -> None:
        Store(tmp_path).write(spectra_table(3), partition, _spectra(3, 5), fingerprint({"same": 1}), {})

    store.write(spectra_table(3), PARTITION, _spectra(3, 1), fingerprint({"v": 0}), {})
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, partitions))
    frame = pl.read_delta(str(tmp_path / "tables" / "spectra"))
    counts = frame.group_by("dataset").len().sort("dataset").rows()
    assert counts == [("d", 1), ("d0", 5), ("d1", 5), ("d2", 5)]


def test_polars_and_deltalake_read_spectra_of_several_sizes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    other = Partition.of(model="m2", dataset="d", encoder="e")
    store.write(spectra_table(3), PARTITION, _spectra(3, 4), fingerprint({}), {})
    store.write(spectra_table(5), other, _spectra(5, 2), fingerprint({}), {})
    uri = str(tmp_path / "tables" / "spectra")
    assert sorted(pl.read_delta(uri)["eigenvalues"].list.len().to_list()) == [3, 3, 3, 3, 5, 5]
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 6


def test_undefined_metrics_stay_null(tmp_path: Path) -> None:
    store = Store(tmp_path)
    cell = Partition.of(model="m", dataset="d")
    rows = pa.table(
        {"method": ["a"], "metric": ["auroc"], "value": [None], "lo": [None], "hi": [None], "n": [3],
         "n_missing": [0], "settings": ["{}"]},
        schema=METRICS.schema,
    )  # fmt: skip
    assert store.write(METRICS, cell, rows, fingerprint({}), {}).read()["value"].to_pylist() == [None]


def test_a_table_in_object_storage_is_read_by_polars_as_it_was_written(object_store: ObjectStore) -> None:
    store = Store(object_store.uri("run"))
    assert store.published("spectra", PARTITION) is None
    key = fingerprint({"a": 1})
    first = store.write(spectra_table(3), PARTITION, _spectra(3, 4), key, {"seed": 7})
    assert store.publish(spectra_table(3), PARTITION, key, {}, files_of(first)) == "noop"
    folder = store.table_folder("spectra")
    reach = {"aws_endpoint_url": object_store.url, "aws_allow_http": "true", "aws_region": "us-east-1"}
    frame = pl.read_delta(str(folder), storage_options=reach)
    assert frame["question_id"].to_list() == ["q0", "q1", "q2", "q3"]
    assert frame["model"].unique().to_list() == ["m"]
    assert (first.manifest["seed"], first.rows) == (7, 4)


def test_shards_in_object_storage_appear_only_when_they_are_published(object_store: ObjectStore) -> None:
    store, key = Store(object_store.uri("run")), fingerprint({})
    files = store.write_shards(spectra_table(3), PARTITION, [_spectra(3, 2), _spectra(3, 3)], key)
    assert sum(files.values()) == 5 and store.published("spectra", PARTITION) is None
    store.publish(spectra_table(3), PARTITION, key, {}, files)
    assert store.require("spectra", PARTITION).read().num_rows == 5


def test_writers_who_race_for_one_partition_in_object_storage_leave_one_result(
    object_store: ObjectStore,
) -> None:
    store = Store(object_store.uri("run"))

    def write(rows: int) -> str:
        key = fingerprint({"rows": rows})
        Store(object_store.uri("run")).write(spectra_table(3), PARTITION, _spectra(3, rows), key, {})
        return key[:12]

    with ThreadPoolExecutor(4) as pool:
        keys = dict(zip(range(1, 7), pool.map(write, range(1, 7)), strict=True))
    found = store.require("spectra", PARTITION)
    assert found.fingerprint == keys[found.rows] and found.read().num_rows == found.rows
    assert found.version == 6  # one creation, then every commit once and none lost beneath another


def test_a_stale_writer_in_object_storage_cannot_commit_over_a_newer_one(object_store: ObjectStore) -> None:
    store = Store(object_store.uri("run"))
    store.write(spectra_table(3), PARTITION, _spectra(3, 4), fingerprint({"v": 1}), {})
    folder = store.table_folder("spectra")
    stale = DeltaTable(str(folder), storage_options=folder.storage_options)
    store.write(spectra_table(3), PARTITION, _spectra(3, 6), fingerprint({"v": 2}), {})
    second = Transaction(f"spectra/{PARTITION.path}", 2)
    with pytest.raises(CommitFailedError):
        stale.create_write_transaction(
            [], mode="overwrite", schema=stale.schema(), partition_filters=PARTITION.filters,
            commit_properties=CommitProperties(app_transactions=[second]),
        )  # fmt: skip
    assert store.require("spectra", PARTITION).rows == 6


def test_a_table_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = Location.of(tmp_path / "scores")
    open_or_create(folder, pa.schema([("request_id", pa.string())]))
    with pytest.raises(UsageError, match="another version of SGPU, whose columns differ: model"):
        open_or_create(folder, pa.schema([("request_id", pa.string()), ("model", pa.string())]))
