from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sgpu.errors import StageError
from sgpu.store import Partition, Store, fingerprint
from sgpu.tables import METRICS, spectra

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
            "prefixes": [None] * rows,
            "prefix_eigenvalues": [None] * rows,
            "n_distinct": [1] * rows,
        },
        schema=spectra(n).schema,
    )


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
    first = store.write(spectra(3), PARTITION, _spectra(3, 4), key, {})
    assert store.publish(spectra(3), PARTITION, key, {}) == "noop"
    again = store.require("spectra", PARTITION)
    assert (again.version, again.rows) == (first.version, 4)


def test_a_new_fingerprint_replaces_the_partition_and_leaves_others_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    other = Partition.of(model="m", dataset="other", encoder="e")
    store.write(spectra(3), PARTITION, _spectra(3, 4), fingerprint({"v": 1}), {})
    store.write(spectra(5), other, _spectra(5, 2), fingerprint({"v": 1}), {})
    store.write(spectra(3), PARTITION, _spectra(3, 6), fingerprint({"v": 2}), {})
    assert store.require("spectra", PARTITION).rows == 6
    assert store.require("spectra", other).rows == 2


def test_a_pinned_read_survives_a_later_commit(tmp_path: Path) -> None:
    store = Store(tmp_path)
    pinned = store.write(spectra(3), PARTITION, _spectra(3, 4), fingerprint({"v": 1}), {})
    store.write(spectra(3), PARTITION, _spectra(3, 6), fingerprint({"v": 2}), {})
    assert pinned.read().num_rows == 4


def test_concurrent_publishers_leave_every_row_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    partitions = [Partition.of(model="m", dataset=f"d{i % 3}", encoder="e") for i in range(9)]

    def write(partition: Partition) -> None:
        Store(tmp_path).write(spectra(3), partition, _spectra(3, 5), fingerprint({"same": 1}), {})

    store.write(spectra(3), PARTITION, _spectra(3, 1), fingerprint({"v": 0}), {})
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, partitions))
    frame = pl.read_delta(str(tmp_path / "tables" / "spectra"))
    counts = frame.group_by("dataset").len().sort("dataset").rows()
    assert counts == [("d", 1), ("d0", 5), ("d1", 5), ("d2", 5)]


def test_polars_and_deltalake_read_spectra_of_several_sizes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    other = Partition.of(model="m2", dataset="d", encoder="e")
    store.write(spectra(3), PARTITION, _spectra(3, 4), fingerprint({}), {})
    store.write(spectra(5), other, _spectra(5, 2), fingerprint({}), {})
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
