"""The whole command: files named and shaped as the paper's, a page that is safe and complete."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from sgpu.cli import app
from sgpu.errors import UsageError
from sgpu.report.aggregate.cells import read_cells
from sgpu.report.aggregate.consistency import MEAN_BOUND
from sgpu.report.aggregate.contents import contents
from sgpu.report.aggregate.page import build_aggregate_report
from sgpu.report.study import published
from tests.contracts.page_contract import Page, PageContract

Write = Callable[..., Path]
ATTACK = "</td><script>alert(1)</script>"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sgpu.report.study import published

    folder = Path(published.__file__).parent.parent / "published"
    out = tmp_path_factory.mktemp("report")
    build_aggregate_report(folder / "summary.csv", out, folder / "transfer_text.csv")
    return out


class TestPage(PageContract):
    scopes = ("row", "col", "rowgroup", "colgroup")

    @pytest.fixture
    def source(self, built: Path) -> str:
        return (built / "index.html").read_text()


@pytest.mark.parametrize(
    "name",
    ["overall_mean", "model_mean", "summary", "transfer_text", "transfer_text_mean", "inconsistencies"],
)
def test_a_file_has_the_columns_and_the_keys_of_the_published_one(
    built: Path, paper_file: Path, name: str
) -> None:
    ours, paper = pl.read_csv(built / f"{name}.csv"), pl.read_csv(paper_file.with_name(f"{name}.csv"))
    assert ours.columns == paper.columns
    keys = [column for column in paper.columns if paper.schema[column] == pl.String]
    assert set(ours.select(keys).iter_rows()) == set(paper.select(keys).iter_rows())
    assert ours.height == paper.height


def test_a_transfer_studys_zero_shot_pool_stands_beside_the_papers(
    paper_file: Path, write_cells: Callable[..., Path]
) -> None:
    """A file as `sgpu transfer` writes it, with the paper's numbers under the names of SGPU."""
    names = {"se": "semantic_entropy", "dse": "discrete_semantic_entropy", "kle": "kernel_language_entropy"}
    names |= {"global-sgpu": "from vision cells"}
    paper = published.read_published_table("transfer_text").filter(pl.col("model") != "mean")
    printed = [
        ",".join([dataset.lower(), model.lower(), names[method.lower()], *map(str, values)])
        for dataset, model, method, *values in paper.iter_rows()
    ]
    others = [
        "gsm8k,llama-3.1-8b-instruct,leave_both_out,0.1,0.1,0.1",
        "ok-vqa,qwen2.5-vl-3b-instruct,semantic_entropy,0.1,0.1,0.1",
        "ok-vqa,qwen2.5-vl-3b-instruct,from text cells,0.1,0.1,0.1",
    ]
    found = contents(read_cells(paper_file), read_cells(write_cells(*printed, *others)))
    compared = found.files["comparison"].filter(pl.col("table").str.starts_with("transfer_text"))
    assert compared["difference"].null_count() == 0 and len(compared) == (4 + 2 + 1) * 4 * 3
    cells = compared.filter((pl.col("dataset") != "") & (pl.col("model") != "mean"))
    assert set(cells["difference"]) == {0}


@pytest.mark.parametrize("name", ["overall_mean", "model_mean", "transfer_text_mean"])
def test_means_equal_the_published_ones_except_the_known_inconsistencies(
    built: Path, paper_file: Path, name: str
) -> None:
    ours, paper = pl.read_csv(built / f"{name}.csv"), pl.read_csv(paper_file.with_name(f"{name}.csv"))
    keys = [column for column in ("setting", "model", "method") if column in paper.columns]
    both = paper.join(ours, on=keys, suffix="_ours", validate="1:1")
    off = {
        ("|".join(row[key] for key in keys if key != "setting"), metric)
        for row in both.iter_rows(named=True)
        for metric in ("auroc", "auarc_20", "ece")
        if abs(row[metric] - row[f"{metric}_ours"]) > MEAN_BOUND + 1e-9
    }
    known = pl.read_csv(paper_file.with_name("inconsistencies.csv"))
    prefix = {"transfer_text_mean": "transfer main-text mean"}.get(name, f"{name} vs summary")
    expected = known.filter(pl.col("check").str.starts_with(prefix)).select("cell", "metric")
    assert off == set(expected.iter_rows())
    assert off


def test_every_table_of_methods_has_its_latex_and_every_metric_its_figure(built: Path) -> None:
    names = {path.name for path in built.iterdir()}
    tables = ("overall_mean", "model_mean", "dataset_mean", "summary", "transfer_text", "transfer_text_mean")
    assert {f"{name}.tex" for name in tables} <= names
    figures = [f"overall_mean_{metric}" for metric in ("auroc", "auarc_20", "ece")]
    assert {f"{name}.{ending}" for name in figures for ending in ("svg", "png")} <= names


def test_latex_of_the_overall_mean_marks_what_the_paper_marks(built: Path) -> None:
    text = (built / "overall_mean.tex").read_text()
    assert r"SGPU & \textbf{0.788} & \textbf{0.704} & \textbf{0.113} \\" in text
    assert r"PE & 0.751 & 0.681 & \underline{0.134} \\" in text


def test_the_page_names_the_values_that_do_not_follow(built: Path) -> None:
    text = Page((built / "index.html").read_text()).text
    assert "0.6708 +0.0102" in text
    assert "0.681† −0.0102" in text  # in the model-wise table: published, and ours minus it
    assert text.count("†") == 4 + 4 + 2 + 4  # model-wise, overall, transfer, and four feet that explain it
    assert "Published values in doubt 18" in text


def test_rows_of_a_table_have_the_width_of_its_head(built: Path) -> None:
    for table in re.findall(r"<table.*?</table>", (built / "index.html").read_text(), flags=re.S):
        widths = set()
        for row in re.findall(r"<tr.*?</tr>", table, flags=re.S):
            cells = re.findall(r"<t[hd]\b[^>]*>", row)
            spans = [int(found[1]) if (found := re.search(r'colspan="(\d+)"', cell)) else 1 for cell in cells]
            widths.add(sum(spans))
        assert len(widths) == 1


def test_hostile_names_stand_as_text(write_cells: Write, tmp_path: Path) -> None:
    numbers = "0.5,0.5,0.5"
    path = write_cells(f"{ATTACK},{ATTACK},{ATTACK},{numbers}", f"{ATTACK},{ATTACK},$\\frac{{$,{numbers}")
    page = build_aggregate_report(path, tmp_path / "out").read_text()
    assert "script" not in {tag for tag, _ in Page(page).elements}
    assert html.escape(ATTACK) in page
    assert "<script>" not in (tmp_path / "out" / "overall_mean_auroc.svg").read_text()


@pytest.mark.parametrize("formula", ["=cmd|' /C calc'!A0", "@SUM(1)", "+1", "-1+2"])
def test_a_name_is_no_formula_in_a_spreadsheet(formula: str, write_cells: Write, tmp_path: Path) -> None:
    path = write_cells(f"{formula},m,SGPU,0.5,0.5,0.5")
    build_aggregate_report(path, tmp_path / "out")
    files = list((tmp_path / "out").glob("*.csv"))
    cells = [cell for file in files for row in pl.read_csv(file, infer_schema=False).rows() for cell in row]
    assert f"'{formula}" in cells and formula not in cells


def test_the_same_cells_in_any_order_give_the_same_tables(paper_file: Path, tmp_path: Path) -> None:
    shuffled = tmp_path / "summary.csv"
    pl.read_csv(paper_file).sample(fraction=1, shuffle=True, seed=3).write_csv(shuffled)
    one, other = contents(read_cells(paper_file)), contents(read_cells(shuffled))
    assert [table.latex() for table in one.tables] == [table.latex() for table in other.tables]
    for mine, its in zip(one.tables, other.tables, strict=True):
        if mine.name.endswith("_mean"):
            assert_frame_equal(mine.frame, its.frame)
    for name in ("ranks", "comparison", "inconsistencies"):
        assert_frame_equal(one.files[name], other.files[name])


def test_the_same_file_gives_the_same_bytes(paper_file: Path, built: Path, tmp_path: Path) -> None:
    build_aggregate_report(paper_file, tmp_path / "again", paper_file.with_name("transfer_text.csv"))
    for path in built.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_own_cells_are_not_called_inconsistent(write_cells: Write, tmp_path: Path) -> None:
    path = write_cells("VizWiz,Qwen2.5-VL-3B,sgpu,0.9,0.6,0.1", "VizWiz,Qwen2.5-VL-3B,KLE,0.8,0.6,0.1")
    page = Page(build_aggregate_report(path, tmp_path / "out").read_text()).text
    assert "These cells are not the paper’s" in page
    assert "Rings: the published mean" not in page
    comparison = pl.read_csv(tmp_path / "out" / "comparison.csv")
    cell = comparison.filter(table="summary", method="SGPU", metric="auroc").row(0, named=True)
    assert (cell["published"], cell["ours"], cell["difference"]) == (0.858, 0.9, 0.042)
    # The overall mean is over one cell, the published one over 24: shown, but not subtracted.
    overall = comparison.filter(table="overall_mean", method="SGPU", metric="auroc").row(0, named=True)
    assert (overall["published"], overall["difference"]) == (0.788, None)


def test_a_mean_over_other_models_is_not_compared_with_the_papers(paper_file: Path, tmp_path: Path) -> None:
    text = pl.read_csv(paper_file.with_name("transfer_text.csv")).filter(model="Qwen2.5-3B-Instruct")
    text.write_csv(tmp_path / "text.csv")
    report = contents(read_cells(paper_file), read_cells(tmp_path / "text.csv"))
    compared = report.files["comparison"].filter(table="transfer_text").drop_nulls("difference")
    assert set(compared["model"]) == {"Qwen2.5-3B-Instruct"}


def test_the_page_of_own_cells_has_no_number_of_the_paper(write_cells: Write, tmp_path: Path) -> None:
    page = build_aggregate_report(write_cells("d,m,x,0.7,0.6,0.1", "d,m,y,0.6,0.5,0.2"), tmp_path / "out")
    assert "Consistency" not in page.read_text() and "in doubt" not in page.read_text()


def test_a_star_appears_where_the_file_holds_a_paired_test(write_cells: Write, tmp_path: Path) -> None:
    header = "dataset,model,method,auroc,auarc_20,ece,auroc_p"
    path = write_cells("d,m,a,0.9,0.6,0.1,0.001", "d,m,b,0.8,0.6,0.1,", header=header)
    page = Page(build_aggregate_report(path, tmp_path / "out").read_text()).text
    assert "0.900*" in page and "0.800*" not in page
    assert "no paired test" not in page


def test_no_star_appears_without_a_paired_test(built: Path) -> None:
    page = Page((built / "index.html").read_text()).text
    assert not re.search(r"\d\*", page)
    assert "no paired test" in page


def test_a_mean_over_fewer_cells_says_over_how_many_and_families_stand_in_order(write_cells: Write) -> None:
    lines = ("d,m,mine,0.1,0.5,0.1", "d,m,SGPU,0.9,0.5,0.1", "d,m,SE,0.5,0.5,0.1", "e,m,SE,0.6,0.5,0.1")
    overall = contents(read_cells(write_cells(*lines, "d,m,log_perplexity,0.4,0.5,0.1"))).tables[0]
    assert [(block, [row.names[0] for row in rows]) for block, rows in overall.blocks] == [
        ("Training-free", ["SE", "log_perplexity"]), ("Trained", ["SGPU"]), ("Other", ["mine"]),
    ]  # fmt: skip
    assert [row.scores[0].text for row in overall.rows] == ["0.550", *["in 1 of 2 cells"] * 3]


def test_one_method_with_missing_values_is_still_a_page(write_cells: Write, tmp_path: Path) -> None:
    page = Page(build_aggregate_report(write_cells("d,m,a,,,"), tmp_path / "out").read_text()).text
    assert "No two methods can be compared" in page
    assert "missing" in page
    assert pl.read_csv(tmp_path / "out" / "overall_mean.csv")["auroc"].to_list() == [None]


def test_a_folder_that_cannot_be_written_is_a_usage_error(paper_file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(UsageError, match="--out"):
        build_aggregate_report(paper_file, tmp_path / "taken")


def test_the_command_prints_its_page(paper_file: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", "--cells", str(paper_file), "--out", str(tmp_path / "r")])
    assert done.exit_code == 0
    assert Path(done.stdout.strip()).is_file()


def test_the_command_needs_its_cells(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["report", "--out", str(tmp_path)]).exception
    assert isinstance(refused, UsageError) and refused.exit_code == 2 and "--cells" in str(refused)
