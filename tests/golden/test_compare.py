"""The comparison behind `make golden` finds what it must, and names its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.compare import close, differences


def compared(
    folder: Path, name: str, expected: str | None, actual: str | None, tolerance: float = 1e-5
) -> list[str]:
    """The differences between one file of two folders, as they are printed."""
    for side, text in (("expected", expected), ("actual", actual)):
        (folder / side).mkdir(exist_ok=True)
        if text is not None:
            (folder / side / name).write_text(text, "utf-8")
    return [str(one) for one in differences(folder / "expected", folder / "actual", tolerance)]


def test_a_float_beyond_the_tolerance_is_named_by_file_row_column_and_both_values(tmp_path: Path) -> None:
    found = compared(
        tmp_path, "m.csv", "method,value\nsep,0.5\nsgpu,0.5\n", "method,value\nsep,0.5\nsgpu,0.50002\n"
    )
    assert found == ["m.csv: row 2, column value: 0.5 -> 0.50002"]


def test_a_float_within_the_tolerance_is_the_same(tmp_path: Path) -> None:
    assert not compared(tmp_path, "m.csv", "value\n0.5\n", "value\n0.500009\n")


def test_counts_are_equal_or_not(tmp_path: Path) -> None:
    found = compared(tmp_path, "m.csv", "n\n1000000\n", "n\n1000001\n", tolerance=1.0)
    assert found == ["m.csv: row 1, column n: 1000000 -> 1000001"]


def test_an_empty_cell_is_no_number(tmp_path: Path) -> None:
    assert compared(tmp_path, "m.csv", "value,n\n0.0,1\n", "value,n\n,1\n") == [
        "m.csv: row 1, column value: 0.0 -> "
    ]


def test_words_are_compared_letter_by_letter(tmp_path: Path) -> None:
    assert compared(tmp_path, "a.txt", "one\ntwo\n", "one\nTwo\n") == ["a.txt: line 2: two -> Two"]


def test_rows_and_columns_that_are_missing_are_said(tmp_path: Path) -> None:
    assert compared(tmp_path, "m.csv", "a,b\n1,2\n3,4\n", "a\n1\n") == [
        "m.csv: header: a,b -> a",
        "m.csv: rows: 2 -> 1",
    ]


@pytest.mark.parametrize(("expected", "actual"), [("x\n", None), (None, "x\n")])
def test_a_file_that_only_one_side_has_is_a_difference(
    tmp_path: Path, expected: str | None, actual: str | None
) -> None:
    assert len(compared(tmp_path, "a.txt", expected, actual)) == 1


def test_json_in_a_cell_is_compared_value_by_value(tmp_path: Path) -> None:
    left, right = '"{""t"": 0.7, ""n"": 3}"', '"{""t"": 0.7000001, ""n"": 4}"'
    found = compared(tmp_path, "m.csv", f"settings\n{left}\n", f"settings\n{right}\n")
    assert found == ["m.csv: row 1, column settings n: 3 -> 4"]


def test_json_files_are_compared_by_path(tmp_path: Path) -> None:
    found = compared(tmp_path, "a.json", '{"a": [1, {"b": true}], "c": 1}', '{"a": [1, {"b": 1}], "d": 1}')
    assert found == ["a.json: a[1].b: true -> 1", 'a.json: c: 1 -> "(absent)"', 'a.json: d: "(absent)" -> 1']


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (float("nan"), float("nan"), True),
        (float("nan"), 0.0, False),
        (float("inf"), 1e300, False),
        (1e6, 1e6 + 1, True),
    ],
)
def test_numbers_that_are_none_or_large(left: float, right: float, same: bool) -> None:
    assert close(left, right, 1e-5) is same
