"""Everything that the page says of one cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from markupsafe import Markup
from matplotlib.figure import Figure

from sgpu.evaluation.auarc import RetentionCurve, retention_curve
from sgpu.evaluation.calibration import ReliabilityCurve, reliability_curve
from sgpu.evaluation.inputs import Bools, Floats
from sgpu.evaluation.metrics import BINS
from sgpu.report.look.svg import inline
from sgpu.report.study import figures
from sgpu.report.study.data import RankedQuestion, ReportData
from sgpu.report.study.leaderboard import MethodRow, Score, further_metrics, leaderboard
from sgpu.report.study.responses import Kind, kinds


@dataclass(frozen=True)
class Labels:
    """How the test questions of a cell were judged."""

    questions: int
    judged: int
    correct: int

    @property
    def missing(self) -> int:
        return self.questions - self.judged

    @property
    def rate(self) -> float | None:
        """Share judged correct among the judged; None where nothing was judged."""
        return self.correct / self.judged if self.judged else None


@dataclass(frozen=True)
class Plot:
    """A figure; ``markup`` is None where there is nothing to draw, and ``why`` says so."""

    title: str
    markup: Markup | None
    why: str = ""
    figure: Figure | None = None


@dataclass(frozen=True)
class CellView:
    """One section of the page."""

    anchor: str
    model: str
    dataset: str
    labels: Labels
    board: list[MethodRow]
    further: list[tuple[str, list[Score]]]  # other metrics, a score for each computed row of the board
    retention: Plot
    reliability: Plot
    histogram: Plot
    drawn: list[str]  # the methods of the retention figure
    bins: ReliabilityCurve
    probable: int  # test rows with a probability
    unsafe: int  # of those, flagged unsafe
    kinds: list[Kind]
    ranking: list[RankedQuestion]  # of a cell that has no labels by design; then nothing else is shown

    def figures(self) -> dict[str, Figure]:
        """The figures that there are, by name."""
        plots = {"retention": self.retention, "reliability": self.reliability, "histogram": self.histogram}
        return {name: plot.figure for name, plot in plots.items() if plot.figure is not None}

    @property
    def compared(self) -> bool:
        """Whether any method was tested against the primary one."""
        return any(row.against for row in self.board)


def cell_view(
    data: ReportData, model: str, dataset: str, anchor: str, style: dict[str, figures.Stroke]
) -> CellView:
    """Gather the tables, figures and response sets of one cell from its test rows."""
    test = data.predictions.filter(
        (pl.col("model") == model) & (pl.col("dataset") == dataset) & (pl.col("split") == "test")
    ).sort("method", "question_id")
    labels = _labels(test)
    board = leaderboard(data, model, dataset)
    curves = _curves(test)
    scored = test.filter((pl.col("method") == data.primary) & pl.col("probability").is_finite())
    probability = _floats(scored["probability"])
    unsafe = scored["unsafe"].fill_null(False).to_numpy().astype(bool)
    judged = scored.filter(pl.col("label").is_not_null())
    bins = reliability_curve(_floats(judged["probability"]), _floats(judged["label"]), BINS)
    return CellView(
        anchor=anchor,
        model=model,
        dataset=dataset,
        labels=labels,
        board=board,
        further=further_metrics(data, model, dataset, board),
        retention=_retention(curves, labels, anchor, style),
        reliability=_reliability(bins, anchor),
        histogram=_histogram(probability, unsafe, anchor),
        drawn=sorted(curves, key=lambda method: (method != data.primary, method)),
        bins=bins,
        probable=len(probability),
        unsafe=int(unsafe.sum()),
        kinds=kinds(e for e in data.examples if (e.model, e.dataset) == (model, dataset)),
        ranking=[row for row in data.ranking if (row["model"], row["dataset"]) == (model, dataset)],
    )


def _floats(column: pl.Series) -> Floats:
    return column.to_numpy().astype(np.float64)


def _labels(test: pl.DataFrame) -> Labels:
    questions = test.unique("question_id", keep="first", maintain_order=True)
    return Labels(questions.height, questions["label"].count(), int(questions["label"].sum() or 0))


def _curves(test: pl.DataFrame) -> dict[str, RetentionCurve]:
    usable = test.filter(pl.col("label").is_not_null() & pl.col("confidence").is_not_nan())
    return {
        str(method): retention_curve(_floats(rows["confidence"]), _floats(rows["label"]))
        for (method,), rows in usable.group_by("method", maintain_order=True)
    }


def _retention(
    curves: dict[str, RetentionCurve], labels: Labels, anchor: str, style: dict[str, figures.Stroke]
) -> Plot:
    title = "Accuracy of the questions kept, most confident first, for every method"
    if not curves or labels.rate is None:
        return Plot(title, None, "No test question has both a label and a confidence.")
    figure = figures.retention_figure(curves, style, labels.rate)
    return Plot(title, inline(figure, f"{anchor}-retention", title), figure=figure)


def _reliability(bins: ReliabilityCurve, anchor: str) -> Plot:
    title = "Share judged correct against the probability that was given, in bins"
    if not len(bins.n_rows):
        return Plot(title, None, "No test question has both a label and a probability.")
    figure = figures.reliability_figure(bins)
    return Plot(title, inline(figure, f"{anchor}-reliability", title), figure=figure)


def _histogram(probability: Floats, unsafe: Bools, anchor: str) -> Plot:
    title = "How many test questions were given which probability, unsafe ones hatched"
    if not len(probability):
        return Plot(title, None, "No test question has a probability.")
    figure = figures.probability_figure(probability, unsafe)
    return Plot(title, inline(figure, f"{anchor}-histogram", title), figure=figure)
