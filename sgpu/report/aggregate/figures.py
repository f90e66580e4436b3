"""The figure of a metric: its mean for every method over the cells that it is the mean of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from sgpu.report.aggregate.tables import Table
from sgpu.report.look.svg import PALETTE
from sgpu.report.study.leaderboard import Column
from sgpu.report.study.table_figure import finish_dots

_WIDTH = 3.75  # inches, as the other figures of a report: 9-point text stays readable on a phone
_ROW, _MARGIN = 0.25, 0.62


def mean_figure(table: Table, column: Column, by_method: Mapping[str, Sequence[float]]) -> Figure:
    """One line a method, in the order of ``table``: cells as small dots, mean as a disc, published as a ring.

    ``by_method`` holds the values of the single cells. Methods without a mean show their cells only, and a
    published mean over other cells is not drawn.
    """
    rows = [row for block in table.only(column.metric).blocks for row in block.rows]
    height = _ROW * max(len(rows), 4) + _MARGIN
    figure = Figure(figsize=(_WIDTH, height))
    figure.subplots_adjust(left=0.32, right=0.97, top=1 - 0.06 / height, bottom=0.5 / height)
    axes = figure.subplots()
    for at, row in enumerate(rows):
        single = by_method.get(row.method, ())
        axes.scatter(single, [at] * len(single), s=9, color=PALETTE["muted"], alpha=0.35, linewidth=0)
        entry = row.entries[0]
        if entry.source.value is not None:
            axes.scatter([entry.source.value], [at], s=34, color=PALETTE["accent"], linewidth=0, zorder=3)
        if entry.source.published is not None and entry.source.comparable:
            axes.scatter(
                [entry.source.published],
                [at],
                s=80,
                facecolor="none",
                edgecolor=PALETTE["unsafe"],
                linewidth=1.1,
                zorder=4,
            )
    better = "higher" if column.higher_is_better else "lower"
    finish_dots(axes, [row.method for row in rows], f"{column.title} ({better} is better)")
    return figure
