"""One classifier for any number of answers beside those fitted to each number: a table, and lines over N."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgpu.report.look.svg import PALETTE, blank, dress
from sgpu.report.study.leaderboard import Measure
from sgpu.report.study.study_table import StudyTable, study_table, wide

CLASSIFIERS = {"sgpu": "fitted to this number", "sgpu_any_size": "one for any number"}
ANY_SIZE = study_table("any_size")


def any_size_frame(sensitivity: pl.DataFrame) -> pl.DataFrame:
    """Means over the cells that have both, and of the ends of their intervals.

    The standard deviation of a mean is at most the mean of the standard deviations, whatever the cells have
    in common, so that such an interval is not too narrow. Cells often share questions.
    """
    keys = ["setting", "method"]
    rows = sensitivity.filter(
        (pl.col("kind") == "n_answers") & pl.col("method").is_in(list(CLASSIFIERS)),
        pl.col("method").n_unique().over("dataset", "model", "setting", "metric") == len(CLASSIFIERS),
    )
    means = rows.group_by(*keys, "metric", maintain_order=True).agg(
        pl.col("value").cast(pl.Float64).mean(),
        *(
            pl.when(pl.col(end).null_count() == 0).then(pl.col(end).cast(pl.Float64).mean()).alias(end)
            for end in ("lo", "hi")
        ),
        pl.len().cast(pl.Float64).alias("cells"),
    )
    cells = means.filter(metric="auroc").select(*keys, "cells")
    frame = wide(means, keys, ["auroc"]).join(cells, on=keys, how="left")
    frame = frame.join(wide(means, keys, ["ece"]), on=keys, how="left")
    name = pl.col("method").replace_strict(CLASSIFIERS, default=None, return_dtype=pl.String)
    return frame.rename({"setting": "n_samples"}).with_columns(name.alias("classifier")).drop("method")


# Told apart without colour too: line, marker, colour.
_STROKES = dict(zip(CLASSIFIERS.values(), (("-", "o", "accent"), ("--", "s", "series-2")), strict=True))
_APART = 0.012  # of the range of N, by which the two are moved aside: their intervals would hide each other


def any_size_figure(table: StudyTable) -> Figure:
    """AUROC above ECE over the number of answers, a line for each classifier, with intervals."""
    figure = blank(4.1, top=0.87, bottom=0.115, hspace=0.12)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, measure in zip(panels, table.measures, strict=False):
        for side, name in ((-1, "fitted to this number"), (1, "one for any number")):
            _draw(axes, table, measure, name, side)
        dress(axes, "", measure.title)
    numbers = _numbers(table)
    panels[-1].set_xticks(numbers, [f"{number:g}" for number in numbers])
    panels[-1].set_xlabel("Answers a question", fontsize=9, color=PALETTE["ink"])
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0.13, 1.0), frameon=False,
        fontsize=8, labelcolor=PALETTE["ink"], handlelength=3, borderaxespad=0.2, labelspacing=0.3,
    )  # fmt: skip
    return figure


def in_words(table: StudyTable) -> str:
    """What is read aloud in place of the figure."""
    numbers = ", ".join(f"{number:g}" for number in _numbers(table))
    return (
        f"{table.title}: AUROC and ECE over {numbers} answers a question, a line for classifiers fitted to "
        "each number and a line for one classifier of any number. The table above has the values."
    )


def _numbers(table: StudyTable) -> list[float]:
    return sorted({float(str(row["n_samples"])) for row in table.ours})


def _draw(axes: Axes, table: StudyTable, measure: Measure, name: str, side: int) -> None:
    ends = [measure.name, f"{measure.name}_lo", f"{measure.name}_hi"]
    own = (
        table.frame.filter(pl.col("classifier") == name)
        .select(pl.col("n_samples").cast(pl.Float64).alias("n"), *ends)
        .drop_nulls(measure.name)
        .sort("n")
    )
    numbers = _numbers(table)
    at = own["n"].to_numpy() + side * _APART * (numbers[-1] - numbers[0])
    dashes, marker, tone = _STROKES[name]
    colour = PALETTE[tone]
    axes.plot(
        at, own[ends[0]], color=colour, linestyle=dashes, marker=marker, ms=4.5, linewidth=1.5, label=name
    )
    axes.vlines(at, own[ends[1]], own[ends[2]], color=colour, linewidth=1.2, alpha=0.6)
