"""Write the report of a transfer study: the page, and every number and figure as files beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sgpu.report.look import numbers, template
from sgpu.report.look.svg import PALETTE, SERIES, canvas, inline, save
from sgpu.report.study.figures import short
from sgpu.report.table import ReportTable, Score
from sgpu.report.transfer.grids import IN_DOMAIN, MEASURES, SCALES, SOURCE, TransferData, grids

_CELL_WIDTH, _CELL_HEIGHT = 0.92, 0.5  # inches
_LEFT, _TOP = 1.75, 0.72
_STRONGEST, _FAINTEST = 0.62, 0.04  # opacity of the best and the worst value
_MARKERS = ("o", "s", "^", "D")  # where there are more lines than colours


def heat_map(grid: ReportTable) -> Figure:
    """One box an entry: stronger is better; its value, and the interval beneath."""
    n_columns, n_rows = len(grid.measures), len(grid.rows)
    width, height = _LEFT + _CELL_WIDTH * n_columns + 0.1, _TOP + _CELL_HEIGHT * n_rows + 0.1
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes(
        (_LEFT / width, 0.1 / height, 1 - (_LEFT + 0.1) / width, 1 - (_TOP + 0.1) / height)
    )
    axes.set_xlim(0, n_columns)
    axes.set_ylim(n_rows, 0)
    for i, row in enumerate(grid.rows):
        for j, (measure, score) in enumerate(zip(grid.measures, row.scores, strict=True)):
            _box(axes, measure.name, score, (j, i))
    axes.set_xticks(np.arange(n_columns) + 0.5, [_broken(measure.group) for measure in grid.measures])
    axes.set_yticks(np.arange(n_rows) + 0.5, [short(row.names[0]) for row in grid.rows])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=7, labelcolor=PALETTE["ink"], pad=3)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def _box(axes: Axes, metric: str, score: Score, at: tuple[int, int]) -> None:
    axes.add_patch(
        Rectangle(
            (at[0] + 0.02, at[1] + 0.03), 0.96, 0.94, linewidth=0, facecolor=PALETTE["accent"],
            alpha=_strength(metric, score.value),
        )
    )  # fmt: skip
    texts = [(0.5, "–", 8.0, "muted")]
    if score.value is not None:
        texts = [(0.38, score.text, 8.5, "ink"), (0.74, score.interval, 5.6, "ink")]
    for down, text, size, colour in texts:
        axes.text(
            at[0] + 0.5, at[1] + down, text, ha="center", va="center", fontsize=size, color=PALETTE[colour]
        )


def _strength(metric: str, value: float | None) -> float:
    """The opacity of a value, between knowing nothing and the best there is."""
    if value is None:
        return 0.0
    nothing, best = SCALES[metric]
    share = min(max((value - nothing) / (best - nothing), 0.0), 1.0)
    return _FAINTEST + (_STRONGEST - _FAINTEST) * share


def _broken(name: str) -> str:
    """A target's name over two lines."""
    return "\n".join(short(part) if len(part) < 17 else f"{short(part[:15])}…" for part in name.split("/"))


Legend = list[tuple[str, str]]  # colour and name of each line


def curve_figure(frame: pl.DataFrame, x_label: str, y_label: str) -> tuple[Figure, Legend]:
    """A line for each target of ``frame`` (size, value, lo and hi) with intervals, and its legend."""
    figure, axes = canvas(x_label, y_label)
    legend = []
    parts = frame.drop_nulls("value").partition_by(_TARGET, as_dict=True)
    for i, (target, part) in enumerate(parts.items()):
        series, marker = SERIES[i % len(SERIES)], _MARKERS[i // len(SERIES) % len(_MARKERS)]
        part = part.sort("size")
        x, y = part["size"].to_numpy() + 0.0, part["value"].to_numpy()
        axes.plot(x, y, color=PALETTE[series], linewidth=1.4, marker=marker, ms=4)
        ends = part["lo"].to_numpy(), part["hi"].to_numpy()
        axes.vlines(x, *ends, color=PALETTE[series], alpha=0.25, linewidth=1)
        legend.append((series, " · ".join(map(str, target))))
    return figure, legend


AXES = {"cells": "Source cells in the pool", "rows": "Training rows in the pool"}
TESTED = ("auroc", "ece")
_TARGET = ["model", "dataset"]


def build_transfer_report(out: Path, data: TransferData) -> Path:
    """Write ``out/report``, metrics, comparisons, curve and calibration; return the page.

    The same data give the same bytes.
    """
    matrices = grids(data)
    figures = {grid.name: heat_map(grid) for grid in matrices}
    curves, calibrations = _curves(data), _calibrations(data)
    folder = out / "report"
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    (folder / "figures").mkdir(exist_ok=True)
    for grid in matrices:
        grid.write(folder / "tables")
        save(figures[grid.name], folder / "figures" / grid.name)
    for name, (figure, _) in (curves | calibrations).items():
        save(figure, folder / "figures" / name)
    for name in ("metrics", "comparisons", "curve", "calibration"):
        getattr(data, name).write_csv(out / f"{name}.csv")
    data.metrics.write_parquet(out / "metrics.parquet")
    html = template("transfer.html.j2", inline=inline).render(
        title=str(data.study.get("name", "transfer")),
        summary=_sentence(data),
        data=data,
        matrices=[grid for grid in matrices if grid.keys == (SOURCE,)],
        targets=[grid for grid in matrices if grid.keys != (SOURCE,)],
        maps={
            grid.name: inline(figures[grid.name], f"map-{i}", grid.title) for i, grid in enumerate(matrices)
        },
        curves=curves,
        calibrations=calibrations,
        calibration=data.calibration.filter(metric="ece").rows(named=True),
        tests=data.comparisons.filter(pl.col("metric").is_in(TESTED)).rows(named=True),
    )
    page = folder / "index.html"
    page.write_bytes(html.encode("utf-8", "backslashreplace"))
    return page


def _curves(data: TransferData) -> dict[str, tuple[Figure, Legend]]:
    """Learning curves by metric and axis."""
    drawn = {}
    for metric in TESTED:
        for axis, label in AXES.items():
            part = data.curve.filter(axis=axis, metric=metric)
            if part.drop_nulls("value").height:
                drawn[f"curve-{axis}-{metric}"] = curve_figure(part, label, MEASURES[metric].title)
    return drawn


def _calibrations(data: TransferData) -> dict[str, tuple[Figure, Legend]]:
    """ECE against labels of the target, by map."""
    parts = data.calibration.filter(metric="ece").partition_by("axis", as_dict=True)
    return {
        f"calibration-{name}": curve_figure(part, "Labels of the target", f"ECE after {name}")
        for (name,), part in parts.items()
    }


def _sentence(data: TransferData) -> str:
    """The mean AUROC of each way over the targets that all of them have."""
    defined = data.metrics.filter((pl.col("metric") == "auroc") & pl.col("value").is_not_null())
    parts = []
    for design in (IN_DOMAIN, *data.designs):
        own = defined.filter(pl.col("design") == design)
        if own.height:
            cells = own.select(_TARGET).n_unique()
            mean = own.group_by(_TARGET).agg(pl.col("value").mean())["value"].mean()
            parts.append(f"{design} {numbers.decimals(float(str(mean)))} over {cells}")
    return (
        f"Mean AUROC by design, over its targets: {'; '.join(parts)}." if parts else "No target was scored."
    )
