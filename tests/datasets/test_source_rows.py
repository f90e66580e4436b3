"""Rows become questions one by one; the values of a row are checked where they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import Field

from sgpu.datasets.base import LoadRequest, Question, RejectedRow
from sgpu.datasets.fields import RowError, number_of, references_of, require_text
from sgpu.datasets.own_questions import PARQUET
from sgpu.datasets.source_rows import (
    BATCH_ROWS,
    DatasetRow,
    SourceOptions,
    SourceReading,
    files_of_split,
    folder_named,
    listing,
    parquet_schema,
    parquet_source_rows,
    read_options,
    rows_without_image,
)
from sgpu.errors import DataError, UsageError
from tests.datasets.vqa_fixtures import png, write_hub

FILE = Path("some/file.tsv")


def rows(*names: str) -> list[DatasetRow]:
    return [DatasetRow(FILE, f"line {i}", {"id": name}) for i, name in enumerate(names)]


def question_of(number: int, row: DatasetRow) -> Question:
    if row.values["id"] == "bad":
        raise RowError("it is bad", "Make it good.")
    return Question(row.values["id"], f"Text {number}?", ("yes",), "g")


def test_a_bad_row_is_rejected_counted_and_does_not_stop_the_others() -> None:
    reading = SourceReading(PARQUET, LoadRequest())
    questions = reading.questions(rows("a", "bad", "b"), question_of)
    assert [(q.question_id, q.text) for q in questions] == [("a", "Text 0?"), ("b", "Text 2?")]
    assert reading.rejected == [RejectedRow("some/file.tsv", "line 1", "it is bad", "Make it good.")]


def test_an_id_of_an_earlier_pool_is_rejected_where_ids_are_unique() -> None:
    reading = SourceReading(PARQUET, LoadRequest())
    reading.questions(rows("a"), question_of)
    questions = reading.questions(rows("a", "b"), question_of)
    assert [q.question_id for q in questions] == ["b"]
    assert reading.rejected[0].reason == "the id 'a' was already used by some/file.tsv, line 0"


def test_repeated_ids_may_be_left_to_the_loader() -> None:
    reading = SourceReading(PARQUET, LoadRequest())
    questions = reading.questions(rows("a", "a"), question_of, unique_ids=False)
    assert len(questions) == 2 and reading.rejected == []


@pytest.mark.parametrize(("value", "number"), [(0, 0), (7, 7), ("12", 12), (" 12 ", 12)])
def test_a_whole_number_may_be_written_in_digits(value: Any, number: int) -> None:
    assert number_of({"n": value}, "n") == number


@pytest.mark.parametrize("value", [None, True, 1.0, "1.5", "-1", "", "²", -1, 10])
def test_what_is_no_whole_number_in_range_is_refused_by_its_column(value: Any) -> None:
    with pytest.raises(RowError, match="n is "):
        number_of({"n": value}, "n", below=10)


def test_references_keep_their_order_without_blanks_and_repetitions() -> None:
    assert references_of(["b", "", " a ", " ", "b", "a"], "references") == ("b", "a")


def test_a_long_value_is_cut_in_the_reason() -> None:
    with pytest.raises(RowError) as caught:
        require_text({"question": ["x" * 1000]}, "question")
    assert len(caught.value.reason) < 100


def test_a_folder_is_found_below_the_root_or_is_the_root(tmp_path: Path) -> None:
    (tmp_path / "a" / "main").mkdir(parents=True)
    (tmp_path / "other").write_text("")
    assert folder_named(tmp_path, "main") == tmp_path / "a" / "main"
    assert folder_named(tmp_path, "other") == tmp_path
    assert listing(tmp_path) == "a/, other"


class Settings(SourceOptions):
    size: int = Field(default=3, ge=1)


def test_options_replace_defaults() -> None:
    assert read_options("toy", Settings, {}).size == 3
    assert read_options("toy", Settings, {"size": 5}).size == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sise": 5}, "data set 'toy': unknown option 'sise'. Did you mean 'size'"),
        ({"size": 0}, "data set 'toy': size: Input should be greater than or equal to 1. Settings: size"),
        ({"size": 0, "colour": 1}, "size: .*; unknown option 'colour'"),
    ],
)
def test_every_fault_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_options("toy", Settings, options)


def test_a_data_set_without_options_says_so() -> None:
    with pytest.raises(UsageError, match=r"unknown option 'size'. Known: none. Settings: none"):
        read_options("toy", SourceOptions, {"size": 3})


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["data/train-00000-of-00002-ab.parquet", "data/train-00001-of-00002-cd.parquet"], [0, 1]),
        (["default/train/0000.parquet", "default/test/0000.parquet"], [0]),
        (["train.parquet", "test.parquet"], [0]),
        (["data/training-0.parquet", "data/pretrain-0.parquet", "train.json"], []),
    ],
)
def test_files_of_a_split_are_known_by_name_or_folder(
    tmp_path: Path, names: list[str], expected: list[int]
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert files_of_split(tmp_path, "train") == [tmp_path / names[i] for i in expected]


def test_the_first_name_that_has_files_counts(tmp_path: Path) -> None:
    (tmp_path / "validation-0.parquet").touch()
    (tmp_path / "test-0.parquet").touch()
    assert files_of_split(tmp_path, "val", "validation", "test") == [tmp_path / "validation-0.parquet"]


def test_rows_are_counted_from_0_in_each_file(tmp_path: Path) -> None:
    n = BATCH_ROWS + 5
    files = [
        write_hub(tmp_path / "a.parquet", {"x": list(range(n))}, [png(0)] * n, row_group_size=100),
        write_hub(tmp_path / "b.parquet", {"x": [7]}, [png(0)]),
    ]
    expected = [(files[0], i, {"x": i}) for i in range(n)] + [(files[1], 0, {"x": 7})]
    rows = parquet_source_rows(files, {"x"})
    assert [(row.file, row.row, row.values) for row in rows] == expected


def test_an_optional_column_is_read_where_a_file_has_it(tmp_path: Path) -> None:
    write_hub(tmp_path / "a.parquet", {"x": [1], "y": [2]}, [png(0)])
    write_hub(tmp_path / "b.parquet", {"x": [1]}, [png(0)])
    rows = parquet_source_rows([tmp_path / "a.parquet", tmp_path / "b.parquet"], {"x"}, {"y"})
    assert [row.values for row in rows] == [{"x": 1, "y": 2}, {"x": 1}]


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("<html>not found</html>")
    with pytest.raises(DataError, match=r"a\.parquet cannot be read as Parquet"):
        list(parquet_source_rows([tmp_path / "a.parquet"], {"x"}))


def test_damaged_pages_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"x": [str(i) * 9 for i in range(999)]}), tmp_path / "a.parquet", compression="zstd"
    )
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    data[40:400] = bytes(360)
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.parquet cannot be read as Parquet"):
        list(parquet_source_rows([tmp_path / "a.parquet"], {"x"}))


def test_columns_are_named_in_the_order_of_the_file(tmp_path: Path) -> None:
    assert parquet_schema(write_hub(tmp_path / "a.parquet", {"y": [1], "x": [2]}, [png(0)])).names == [
        "image",
        "y",
        "x",
    ]


@pytest.mark.parametrize("hole", [None, b"", {"bytes": None, "path": "x.png"}])
def test_rows_without_image_bytes_are_found_in_every_row_group(tmp_path: Path, hole: Any) -> None:
    cells = [png(1), png(2), png(3), hole, hole, png(4)]
    file = write_hub(tmp_path / "a.parquet", {}, cells, row_group_size=2)
    assert rows_without_image(file) == {3, 4}


def test_rows_are_looked_at_where_a_file_has_no_statistics(tmp_path: Path) -> None:
    file = write_hub(tmp_path / "a.parquet", {}, [png(1), None], write_statistics=False)
    assert rows_without_image(file) == {1}
