"""Write the report of a transfer study: the page, and every number and figure as files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl
from markupsafe import Markup
from matplotlib.figure import Figure

from sgpu.report.look import numbers
from sgpu.report.look.svg import inline, save
from sgpu.report.study.page import TEMPLATES, environment_of
from sgpu.report.transfer.data import IN_DOMAIN, TransferData
from sgpu.report.transfer.figures import curve_figure, heat_map, legend
from sgpu.report.transfer.grids import MEASURES, Grid, grids

AXES = {"cells": "Source cells in the pool", "rows": "Training rows in the pool"}
TESTED = ("auroc", "ece")
_TARGET = ["model", "dataset"]


def build_transfer_report(out: Path, data: TransferData) -> Path:
    """Write ``out/report``, metrics, comparisons, curve and calibration; return the page.

    The same data give the same bytes.
    """
    found = grids(data)
    maps = {grid.name: heat_map(grid) for grid in found}
    curves = _curves(data)
    folder = out / "report"
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    (folder / "figures").mkdir(exist_ok=True)
    for grid in found:
        grid.frame().write_csv(folder / "tables" / f"{grid.name}.csv")
        (folder / "tables" / f"{grid.name}.tex").write_text(grid.latex(), "utf-8")
    for name, figure in (maps | {name: drawn for name, (drawn, _) in curves.items()}).items():
        save(figure, folder / "figures" / name)
    files = {"comparisons": data.comparisons, "curve": data.curve, "calibration": data.calibration}
    for name, frame in {"metrics": data.metrics, **files}.items():
        frame.write_csv(out / f"{name}.csv")
    data.metrics.write_parquet(out / "metrics.parquet")
    page = folder / "index.html"
    page.write_bytes(_page(data, found, maps, curves).encode("utf-8", "backslashreplace"))
    return page


Curves = Mapping[str, tuple[Figure, list[tuple[str, str]]]]


def _curves(data: TransferData) -> Curves:
    """Learning curves by axis and metric, and ECE against labels of the target."""
    drawn = {}
    for metric in TESTED:
        for axis, label in AXES.items():
            part = data.curve.filter((pl.col("axis") == axis) & (pl.col("metric") == metric))
            if part.drop_nulls("value").height:
                figure = curve_figure(part, _TARGET, label, MEASURES[metric][0])
                drawn[f"curve-{axis}-{metric}"] = (figure, legend(part, _TARGET))
    part = data.calibration.filter(pl.col("metric") == "ece")
    for name in part["axis"].unique(maintain_order=True):
        own = part.filter(pl.col("axis") == name)
        figure = curve_figure(own, _TARGET, "Labels of the target", f"ECE after {name}")
        drawn[f"calibration-{name}"] = (figure, legend(own, _TARGET))
    return drawn


def _page(data: TransferData, found: list[Grid], maps: Mapping[str, Figure], curves: Curves) -> str:
    environment = environment_of(TEMPLATES)
    environment.filters.update(
        decimals=numbers.decimals,
        interval=numbers.interval,
        signed=numbers.signed,
        p_value=numbers.probability,
        count=numbers.count,
        percent=numbers.percent,
    )
    drawn: dict[str, Markup] = {
        grid.name: inline(maps[grid.name], f"map-{i}", grid.title) for i, grid in enumerate(found)
    }
    shown = {name: (inline(figure, name, name), key) for name, (figure, key) in curves.items()}
    calibration = data.calibration.filter(pl.col("metric") == "ece")
    return environment.get_template("transfer.html.j2").render(
        title=str(data.study.get("name", "transfer")),
        summary=_sentence(data),
        tiles=_tiles(data),
        data=data,
        matrices=[grid for grid in found if not grid.name.startswith("targets-")],
        targets=[grid for grid in found if grid.name.startswith("targets-")],
        maps=drawn,
        curves={name: view for name, view in shown.items() if name.startswith("curve-")},
        calibrations={name: view for name, view in shown.items() if name.startswith("calibration-")},
        calibration=calibration.rows(named=True),
        tests=data.comparisons.filter(pl.col("metric").is_in(TESTED)).rows(named=True),
    )


def _sentence(data: TransferData) -> str:
    """The mean AUROC of each way over the targets that all of them have."""
    known = data.metrics.filter((pl.col("metric") == "auroc") & pl.col("value").is_not_null())
    parts = []
    for design in (IN_DOMAIN, *data.designs):
        own = known.filter(pl.col("design") == design)
        if own.height:
            cells = own.select(_TARGET).n_unique()
            mean = own.group_by(_TARGET).agg(pl.col("value").mean())["value"].mean()
            parts.append(f"{design} {numbers.decimals(float(str(mean)))} over {cells}")
    return (
        f"Mean AUROC by design, over its targets: {'; '.join(parts)}." if parts else "No target was scored."
    )


def _tiles(data: TransferData) -> list[tuple[str, str, str]]:
    undefined = int(data.metrics["value"].null_count())
    left_out = sum(fit["left_out"] for fit in data.fits)
    return [
        ("Cells", numbers.count(len(data.sources)), "each a target, and a source for others"),
        ("Classifiers", numbers.count(len(data.fits)), "chosen and fitted without their target"),
        ("Rows left out", numbers.count(left_out), "as questions of a target under other keys"),
        ("Undefined values", numbers.count(undefined), "never counted as zero"),
    ]
