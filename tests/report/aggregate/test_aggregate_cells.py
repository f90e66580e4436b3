from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from sgpu.errors import DataError, UsageError
from sgpu.report.aggregate.cells import read_cells

Write = Callable[..., Path]


def test_the_papers_file_has_264_complete_rows_of_24_cells(paper_file: Path) -> None:
    cells = read_cells(paper_file)
    assert cells.frame.height == 264
    assert len(cells.pairs()) == 24
    assert cells.frame.select(pl.col("auroc", "auarc_20", "ece").null_count()).row(0) == (0, 0, 0)
    assert cells.are_of_the_paper()


@pytest.mark.parametrize(
    ("value", "said"),
    [("1.2", "'1.2'"), ("-0.1", "'-0.1'"), ("84.8", "'84.8'"), ("high", "'high'"), ("inf", "'inf'")],
)
def test_a_value_that_is_no_share_is_named_with_its_row_and_bound(
    write_cells: Write, value: str, said: str
) -> None:
    path = write_cells("d,m,a,0.5,0.5,0.5", f"d,m,b,0.5,{value},0.5")
    with pytest.raises(DataError) as error:
        read_cells(path)
    text = str(error.value)
    assert f"{path}, row 3 (d, m, b): auarc_20 is {said}" in text
    assert "from 0 to 1" in text and "decimal point" in text


def test_a_decimal_comma_in_quotes_is_refused(write_cells: Write) -> None:
    with pytest.raises(DataError, match=r"auroc is '0,755'"):
        read_cells(write_cells('d,m,a,"0,755",0.5,0.5'))


def test_further_wrong_values_are_counted(write_cells: Write) -> None:
    with pytest.raises(DataError, match="Further wrong values in this column: 2"):
        read_cells(write_cells(*(f"d,m,{name},7,0.5,0.5" for name in "abc")))


def test_bounds_themselves_are_allowed(write_cells: Write) -> None:
    frame = read_cells(write_cells("d,m,a,1,0,1e-3")).frame
    assert frame.select("auroc", "auarc_20", "ece").row(0) == (1.0, 0.0, 0.001)


@pytest.mark.parametrize("text", ["", "nan", "NaN", " "])
def test_an_unknown_value_stays_missing(write_cells: Write, text: str) -> None:
    assert read_cells(write_cells(f"d,m,a,{text},0.5,0.5")).frame["auroc"].to_list() == [None]


def test_a_row_given_twice_names_both_rows(write_cells: Write) -> None:
    path = write_cells("d,m,a,0.5,0.5,0.5", "d,m,b,0.5,0.5,0.5", "d,m,a,0.6,0.5,0.5")
    with pytest.raises(DataError, match=r"rows 2, 4: d, m, a is there 2 times"):
        read_cells(path)


def test_two_names_of_one_method_are_one_row_given_twice(write_cells: Write) -> None:
    with pytest.raises(DataError, match="KLE is there 2 times"):
        read_cells(write_cells("d,m,KLE,0.5,0.5,0.5", "d,m,kernel_language_entropy,0.5,0.5,0.5"))


def test_an_empty_name_is_refused(write_cells: Write) -> None:
    with pytest.raises(DataError, match="row 2: model is empty"):
        read_cells(write_cells("d,,a,0.5,0.5,0.5"))


def test_an_absent_column_is_named_with_those_that_are_there(write_cells: Write) -> None:
    with pytest.raises(DataError, match=r"no column ece.*it has .*brier"):
        read_cells(write_cells("d,m,a,0.5,0.5,0.5", header="dataset,model,method,auroc,auarc_20,brier"))


def test_a_file_without_rows_is_refused(write_cells: Write) -> None:
    with pytest.raises(DataError, match="no row"):
        read_cells(write_cells())


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").touch()
    with pytest.raises(DataError, match="cannot be read as CSV"):
        read_cells(tmp_path / "x.csv")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"dataset,model,method,auroc,auarc_20,ece\n\xff\xfe,m,a,1,1,1\n")
    with pytest.raises(DataError, match="cannot be read as CSV"):
        read_cells(tmp_path / "x.csv")


def test_a_row_with_too_many_fields_is_refused(write_cells: Write) -> None:
    with pytest.raises(DataError, match="cannot be read as CSV"):
        read_cells(write_cells("d,m,a,0.5,0.5,0.5,0.9"))


def test_an_absent_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_cells(tmp_path / "none.csv")


def test_registered_names_and_other_cases_become_those_of_the_paper(write_cells: Write) -> None:
    lines = ("vizwiz,qwen2.5-vl-3b,semantic_entropy,0.5,0.5,0.5", "own,m,log_perplexity,0.5,0.5,0.5")
    frame = read_cells(write_cells(*lines)).frame
    assert frame.select("dataset", "model", "method").rows() == [
        ("VizWiz", "Qwen2.5-VL-3B", "SE"),
        ("own", "m", "log_perplexity"),
    ]


def test_rows_of_means_are_left_out_and_counted(write_cells: Write) -> None:
    cells = read_cells(write_cells("d,m,a,0.5,0.5,0.5", "d,mean,a,0.9,0.9,0.9"))
    assert (cells.frame.height, cells.left_out) == (1, 1)


def test_metrics_of_a_run_are_read_in_long_form(write_cells: Write) -> None:
    header = "dataset,model,method,metric,value,lo,hi,n,n_missing,settings"
    lines = (
        "d,m,sgpu,auroc,0.8,,,5,0,{}",
        "d,m,sgpu,ece,0.1,,,5,0,{}",
        "d,m,sgpu,log_loss,3.5,,,5,0,{}",
        "d,m,sgpu,auarc_20,,,,5,0,{}",
    )
    frame = read_cells(write_cells(*lines, header=header)).frame
    assert frame.select("dataset", "model", "method", "auroc", "auarc_20", "ece").rows() == [
        ("d", "m", "SGPU", 0.8, None, 0.1)
    ]


def test_other_numbers_for_the_papers_cells_are_not_the_papers(write_cells: Write, paper_file: Path) -> None:
    frame = pl.read_csv(paper_file).with_columns(pl.col("auroc", "auarc_20", "ece") * 0.9)
    path = write_cells()
    frame.write_csv(path)
    assert not read_cells(path).are_of_the_paper()
