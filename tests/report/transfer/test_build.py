from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from sgpu.report.table import ReportTable, Score
from sgpu.report.transfer.grids import TransferData, grids
from sgpu.report.transfer.page import build_transfer_report
from sgpu.study.benchmark import Cell
from sgpu.transfer.designs import Gap, Plan
from sgpu.transfer.measure import COMPARISON_FILE, METRIC_FILE, POINT_FILE, Forecast
from tests.contracts.page_contract import PageContract
from tests.stages.quiet_runs import table_of

BAD = "m<b>&_1"


def frame(rows: list[dict[str, object]], schema: pa.Schema) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(table_of(schema, rows)))


def metric(model: str, design: str, method: str, name: str, value: float | None) -> dict[str, object]:
    lo, hi = (None, None) if value is None else (value - 0.1, value + 0.1)
    return {
        "model": model, "dataset": "facts", "design": design, "method": method, "metric": name,
        "value": value, "lo": lo, "hi": hi, "n": 40, "n_missing": 0, "settings": "{}",
    }  # fmt: skip


def point(axis: str, size: int, name: str, value: float | None) -> dict[str, object]:
    return {
        "model": BAD, "dataset": "facts", "design": "leave_one_model_out", "axis": axis, "size": size,
        "metric": name, "value": value, "lo": value, "hi": value, "seeds": 2, "n": 40, "n_missing": 0,
        "undefined": None if value is not None else "the target has 3 labelled rows",
    }  # fmt: skip


@pytest.fixture
def data() -> TransferData:
    rows = []
    for name, base in (("auroc", 0.8), ("auarc", 0.7), ("ece", 0.25)):
        rows += [
            metric(BAD, "in_domain", "in_domain", name, base),
            metric(BAD, "model_matrix", "from model two", name, base - 0.05),
            metric(BAD, "leave_one_model_out", "leave_one_model_out", name, base - 0.02),
            metric(BAD, "training_free", "spectral_entropy", name, base - 0.03),
            metric("two", "in_domain", "in_domain", name, base + 0.01),
            metric("two", "model_matrix", f"from model {BAD}", name, None),
        ]
    test = {
        "model": BAD, "dataset": "facts", "method": "spectral_entropy", "reference": "in_domain",
        "metric": "auroc", "difference": -0.03, "lo": -0.1, "hi": 0.05, "p": 0.4, "p_holm": 0.8,
        "test": "delong", "n": 40, "n_missing": 0, "settings": "{}",
    }  # fmt: skip
    return TransferData(
        study={
            "name": "s",
            "curve": {"design": "leave_one_model_out", "seeds": 2},
            "calibration": {"design": "leave_one_model_out", "seeds": 2},
        },
        run_info={},
        designs=["model_matrix", "leave_one_model_out"],
        sources=[(f"{BAD}/facts", "text", Counter(train=50, validation=10, test=40), None)],
        metrics=frame(rows, METRIC_FILE),
        comparisons=frame([test], COMPARISON_FILE),
        curve=frame([point("cells", size, "auroc", 0.6 + size / 10) for size in (1, 2)], POINT_FILE),
        calibration=frame(
            [point("shift", size, "ece", v) for size, v in ((0, 0.2), (25, 0.1), (50, None))], POINT_FILE
        ),
        fits=[
            Forecast(
                Plan("in_domain", "in_domain", Cell(BAD, "facts"), (Cell("x", "y"),)), np.zeros(0), "",
                record={
                    "chosen": "rbf, raw, 8 inducing points", "n_train": 50, "n_selection": 10,
                    "left_out_as_target_questions": 7,
                },
            )
        ],
        gaps=[Gap(design="modality", target=Cell(BAD, "facts"), why="no cell of another modality")],
        notes=["A note."],
    )  # fmt: skip


@pytest.fixture
def page(data: TransferData, tmp_path: Path) -> str:
    return build_transfer_report(tmp_path, data).read_text()


def entries(grid: ReportTable) -> dict[tuple[str, str], Score]:
    return {
        (row.names[0], column.group): score
        for row in grid.rows
        for column, score in zip(grid.measures, row.scores, strict=True)
    }


def test_a_matrix_has_its_sources_as_rows_and_its_targets_as_columns(data: TransferData) -> None:
    grid = next(grid for grid in grids(data) if grid.name == "model_matrix-facts-auroc")
    assert entries(grid)["two", BAD].value == pytest.approx(0.75)
    assert entries(grid)["two", "two"].value == pytest.approx(0.81)
    assert entries(grid)[BAD, "two"].value is None


def test_the_table_of_targets_has_designs_in_order_and_then_training_free_methods(data: TransferData) -> None:
    grid = next(grid for grid in grids(data) if grid.name == "targets-ece")
    assert [row.names[0] for row in grid.rows] == ["in_domain", "leave_one_model_out", "spectral_entropy"]
    assert entries(grid)["leave_one_model_out", "two/facts"].text == ""


def test_every_matrix_is_there_as_svg_csv_and_latex(data: TransferData, tmp_path: Path) -> None:
    report = build_transfer_report(tmp_path, data).parent
    for grid in grids(data):
        svg = ElementTree.parse(report / "figures" / f"{grid.name}.svg")
        texts = ["".join(node.itertext()).strip() for node in svg.iter("{http://www.w3.org/2000/svg}text")]
        table = pl.read_csv(report / "tables" / f"{grid.name}.csv")
        assert table.height == sum(score.text != "" for score in grid.scores)
        latex = (report / "tables" / f"{grid.name}.tex").read_text()
        for entry in grid.scores:
            if entry.value is not None:
                assert entry.text in texts and entry.interval in texts
                assert entry.text in latex and entry.interval in latex


def test_the_page_shows_value_and_interval_inside_the_heat_map(page: str) -> None:
    svg = next(part for part in re.findall(r"<svg.*?</svg>", page, re.S) if "trained on the row" in part)
    assert "0.750" in svg and "[0.650, 0.850]" in svg


class TestPage(PageContract):
    @pytest.fixture
    def source(self, page: str) -> str:
        assert BAD not in page and "m&lt;b&gt;&amp;_1" in page
        return page


def test_what_is_undefined_says_why_and_gaps_are_listed(page: str) -> None:
    assert "the target has 3 labelled rows" in page
    assert "no cell of another modality" in page and "A note." in page


def test_latex_escapes_names(data: TransferData) -> None:
    grid = next(grid for grid in grids(data) if grid.name == "model_matrix-facts-auroc")
    assert r"m<b>\&\_1" in grid.latex() and r"\toprule" in grid.latex()


def test_the_same_data_give_the_same_bytes(data: TransferData, tmp_path: Path) -> None:
    one, two = (build_transfer_report(tmp_path / name, data).parent for name in ("a", "b"))
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert files and all((one / path).read_bytes() == (two / path).read_bytes() for path in files)


def test_an_empty_curve_and_calibration_leave_their_sections_out(data: TransferData, tmp_path: Path) -> None:
    empty = replace(
        data, study={"name": "s", "curve": None, "calibration": None}, curve=data.curve.clear(),
        calibration=data.calibration.clear(),
    )  # fmt: skip
    page = build_transfer_report(tmp_path, empty).read_text()
    assert 'id="curves"' not in page and 'id="calibration"' not in page
