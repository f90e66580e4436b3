"""Rows of Hub files: which files make a split, what a row holds, and which rows have no image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpu.datasets.parquet_rows import BATCH_ROWS, column_names, files_of_split, iter_rows, rows_without_image
from sgpu.errors import DataError
from tests.datasets.vqa_fixtures import png, write_hub


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
    assert list(iter_rows(files, {"x"})) == expected


def test_an_optional_column_is_read_where_a_file_has_it(tmp_path: Path) -> None:
    write_hub(tmp_path / "a.parquet", {"x": [1], "y": [2]}, [png(0)])
    write_hub(tmp_path / "b.parquet", {"x": [1]}, [png(0)])
    rows = iter_rows([tmp_path / "a.parquet", tmp_path / "b.parquet"], {"x"}, {"y"})
    assert [row for _, _, row in rows] == [{"x": 1, "y": 2}, {"x": 1}]


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("<html>not found</html>")
    with pytest.raises(DataError, match=r"a\.parquet cannot be read as Parquet"):
        list(iter_rows([tmp_path / "a.parquet"], {"x"}))


def test_damaged_pages_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"x": [str(i) * 9 for i in range(999)]}), tmp_path / "a.parquet", compression="zstd"
    )
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    data[40:400] = bytes(360)
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.parquet cannot be read as Parquet"):
        list(iter_rows([tmp_path / "a.parquet"], {"x"}))


def test_columns_are_named_in_the_order_of_the_file(tmp_path: Path) -> None:
    assert column_names(write_hub(tmp_path / "a.parquet", {"y": [1], "x": [2]}, [png(0)])) == [
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
