"""Files whose column types would run code are refused before a value is made, by every reader we have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from sgpu.datasets import responses
from sgpu.datasets.image_files import ParquetImage
from sgpu.datasets.source_rows import parquet_schema, parquet_source_rows
from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.gp.fitting import TrainingRows
from sgpu.gp.persistence import read_pool, write_training_rows
from sgpu.scoring.summary import collect_examples
from sgpu.stages.judge import JudgeWorker
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import (
    UNPICKLES,
    opened,
    opened_arrow,
    read_arrow,
    read_rows,
    row_count,
    write_rows,
)
from tests.hostile_arrow import TYPE, pickled, swapped
from tests.scoring.log_folders import items, read, row

QUESTIONS = pa.table(
    {
        "question_id": ["a", "b"],
        "question": ["?", "?"],
        "references": [["x"], ["y"]],
        "answers": [["x"] * 2] * 2,
    }
)


def as_parquet(rows: pa.Table, file: Path) -> Path:
    pq.write_table(rows, file)
    return file


def as_feather(rows: pa.Table, file: Path) -> Path:
    pyarrow.feather.write_feather(rows, str(file))
    return file


def as_ipc(rows: pa.Table, file: Path) -> Path:
    with pa.ipc.new_file(str(file), rows.schema) as writer:
        writer.write_table(rows)
    return file


def test_what_is_guarded_against_is_real(tmp_path: Path) -> None:
    file = as_parquet(swapped(QUESTIONS, "references", tmp_path / "ran"), tmp_path / "a.parquet")
    pq.read_table(file).to_pylist()
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("write", "open_file"),
    [
        (as_parquet, lambda file: read_rows(file, ["question_id"]).to_pylist()),
        (as_parquet, lambda file: opened(file).read().to_pylist()),
        (as_parquet, row_count),
        (as_feather, lambda file: read_arrow(file, ["question_id"]).to_pylist()),
        (as_ipc, lambda file: opened_arrow(file, str(file)).read_all().to_pylist()),
        (as_parquet, lambda file: JudgeWorker("alias", "", [str(file)]).open()),
        (as_parquet, responses.load_responses),
        (as_parquet, lambda file: list(parquet_source_rows([file], ["question_id"]))),
        (as_parquet, parquet_schema),
        (as_parquet, lambda file: ParquetImage(file, 0, "references").read()),
        (as_parquet, lambda file: collect_examples([Location.of(file)])),
        (as_feather, read_pool),
    ],
)
def test_a_questions_table_with_one_pickled_column_runs_no_code(
    write: Callable[[pa.Table, Path], Path], open_file: Callable[[Path], Any], tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    file = write(swapped(QUESTIONS, "references", marker), tmp_path / "file.parquet")
    with pytest.raises(IntegrityError, match=rf"{file}: the column 'references' is .*{TYPE}"):
        open_file(file)
    assert not marker.exists()


def test_a_log_with_a_pickled_column_is_one_fault_that_names_it(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([row(0), row(1)])
    rows = rows.append_column("metadata", pickled(tmp_path / "ran", 2))
    (tmp_path / "logs").mkdir()
    as_parquet(rows, tmp_path / "logs" / "a.parquet")
    (fault,) = items(read(tmp_path / "logs"))
    assert (
        fault.reason == "file_unreadable" and f"'metadata' is of the extension type '{TYPE}'" in fault.detail
    )  # type: ignore[union-attr]
    assert not (tmp_path / "ran").exists()


NESTED = {
    "a list": (lambda values: pa.ListArray.from_arrays([0, 1, 2], values), "c.(item|element)"),
    "a struct in a list": (
        lambda values: pa.ListArray.from_arrays([0, 1, 2], pa.StructArray.from_arrays([values], ["deep"])),
        "c.(item|element).deep",
    ),
    "a map": (lambda values: pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "l"]), values), "c.value"),
    "a fixed list": (lambda values: pa.FixedSizeListArray.from_arrays(values, 1), "c.(item|element)"),
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("write", [as_parquet, as_ipc])
def test_a_type_inside_another_is_found(
    kind: str, write: Callable[[pa.Table, Path], Path], tmp_path: Path
) -> None:
    wrapped, path = NESTED[kind]
    file = write(pa.table({"c": wrapped(pickled(tmp_path / "ran", 2))}), tmp_path / "f")
    read_file = read_rows if write is as_parquet else lambda file: opened_arrow(file, str(file))
    with pytest.raises(IntegrityError, match=rf"the column '{path}' "):
        read_file(file)


def test_dictionaries_of_a_type_are_refused(tmp_path: Path) -> None:
    values = pickled(tmp_path / "ran", 1)
    rows = pa.table({"c": pa.DictionaryArray.from_arrays(pa.array([0, 0]), values)})
    with pytest.raises(IntegrityError, match=r"the column 'c' "):
        opened_arrow(as_ipc(rows, tmp_path / "f"), "f")


def test_a_type_that_nobody_has_registered_here_is_refused_too(tmp_path: Path) -> None:
    field = pa.field(
        "c", pa.binary(), metadata={"ARROW:extension:name": "some.type", "ARROW:extension:metadata": ""}
    )
    rows = pa.table([pa.array([b"x"])], schema=pa.schema([field]))
    for file in (as_parquet(rows, tmp_path / "a"), as_feather(rows, tmp_path / "b")):
        with pytest.raises(IntegrityError, match=r"the column 'c' is .*some\.type"):
            read_rows(file) if file.name == "a" else read_arrow(file, ["c"])


def test_columns_of_json_and_uuid_of_other_writers_are_read_as_text_and_bytes(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("j", pa.json_()), pa.field("u", pa.uuid())])
    rows = pa.table([pa.array(["{}"], pa.json_()), pa.array([b"x" * 16], pa.uuid())], schema=schema)
    # As written by what is not Arrow: the Parquet types alone say what the columns hold.
    pq.write_table(rows, tmp_path / "a.parquet", store_schema=False)
    assert read_rows(tmp_path / "a.parquet").to_pylist() == [{"j": "{}", "u": b"x" * 16}]


def test_nothing_is_opened_where_ray_is_told_to_unpickle_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = as_parquet(QUESTIONS, tmp_path / "a.parquet")
    monkeypatch.setenv(UNPICKLES, "1")
    for open_file in (read_rows, lambda file: opened_arrow(file, "f")):
        with pytest.raises(UsageError, match=UNPICKLES):
            open_file(file)


def test_columns_that_are_asked_for_are_read_alone_and_missing_ones_are_named(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.parquet", QUESTIONS)
    assert read_rows(tmp_path / "a.parquet", ["question"]).column_names == ["question"]
    with pytest.raises(DataError, match=r"has no column nothing; it has question_id, question"):
        read_rows(tmp_path / "a.parquet", ["question", "nothing"])


def test_what_we_write_ourselves_is_read_back(tmp_path: Path) -> None:
    write_training_rows(tmp_path / "rows", TrainingRows(np.ones((2, 3)), np.array([0, 1])))
    written = read_pool(tmp_path / "rows")
    assert written.x.tolist() == [[1.0] * 3] * 2 and written.y.tolist() == [0, 1]
