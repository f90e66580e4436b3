"""Everything that the page says of one cell, and the response sets that it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import chain, repeat

import polars as pl

from sgpu.evaluation.calibration import ReliabilityCurve, reliability_curve
from sgpu.evaluation.metrics import BINS
from sgpu.evaluation.ranking import RetentionCurve, retention_curve
from sgpu.report.look.numbers import is_finite
from sgpu.report.look.svg import Picture
from sgpu.report.study import figures
from sgpu.report.study.data import CellRanking, Example, ReportData
from sgpu.report.study.leaderboard import MethodRow, further_metrics, leaderboard
from sgpu.report.table import Row
from sgpu.stages.cell_frame import floats

SHOWN_OF_A_KIND = 3


def answer_groups(example: Example) -> list[tuple[tuple[str, str], int]]:
    """Count the answers by text and vote, most frequent first, then in order of appearance.

    A vote is "correct", "wrong" or "missing".
    """
    votes = ["missing" if vote is None else "correct" if vote else "wrong" for vote in example.votes]
    return Counter(zip(example.answers, chain(votes, repeat("missing")), strict=False)).most_common()


def kinds(examples: Iterable[Example]) -> list[tuple[str, str, list[Example]]]:
    """The safest correct, the most confident wrong, the doubted agreeing and the unsafe ones, a few of each.

    Each kind has its heading, and what is said if it has no examples. Sorted by probability, then question
    id. A response set without a probability is not shown.
    """
    scored = sorted(
        (example for example in examples if is_finite(example.probability)),
        key=lambda example: (-(example.probability or 0.0), example.question_id),
    )
    confident = [example for example in scored if not example.unsafe and (example.probability or 0.0) >= 0.5]
    # Where taking the most frequent answer for the right one fails; those that agree most come first.
    doubted = sorted(
        (e for e in scored if e.label == 0 and (e.agreement or 0.0) > 0.5 and (e.probability or 0.0) < 0.5),
        key=lambda example: (-(example.agreement or 0.0), example.question_id),
    )
    trusted = "None was trusted (probability of one half or more, not unsafe) and judged"
    groups = (
        ("Safest and judged correct", f"{trusted} correct.", [e for e in confident if e.label == 1]),
        ("Most confident, yet judged wrong", f"{trusted} wrong.", [e for e in confident if e.label == 0]),
        (
            "Answers that agree, are judged wrong, and are doubted",
            "None agrees by more than half, is judged wrong, and has a probability below one half.",
            doubted,
        ),
        ("Unsafe", "No response set was flagged unsafe.", [e for e in scored if e.unsafe]),
    )
    return [(title, none, examples[:SHOWN_OF_A_KIND]) for title, none, examples in groups]


@dataclass(frozen=True)
class LabelCounts:
    """How the test questions of a cell were judged."""

    questions: int
    judged: int
    correct: int

    @classmethod
    def over(cls, cells: Iterable[CellView]) -> LabelCounts:
        """Of several cells together."""
        labels = [cell.labels for cell in cells]
        return cls(*(sum(getattr(each, name.name) for each in labels) for name in fields(cls)))

    @property
    def missing(self) -> int:
        return self.questions - self.judged

    @property
    def rate(self) -> float | None:
        """Share judged correct among the judged; None where nothing was judged."""
        return self.correct / self.judged if self.judged else None


# The figures of a cell: what is read aloud in place of one, and what is said where it cannot be drawn.
PLOTS = {
    "retention": (
        "Accuracy of the questions kept, most confident first, for every method",
        "No test question has both a label and a confidence.",
    ),
    "reliability": (
        "Share judged correct against the probability that was given, in bins",
        "No test question has both a label and a probability.",
    ),
    "histogram": (
        "How many test questions were given which probability, unsafe ones hatched",
        "No test question has a probability.",
    ),
}


@dataclass(frozen=True)
class CellView:
    """One section of the page."""

    anchor: str
    model: str
    dataset: str
    labels: LabelCounts
    board: list[MethodRow]
    further: list[Row]  # other metrics, a score for each computed row of the board
    plots: dict[str, Picture]  # by the names of PLOTS
    drawn: list[str]  # the methods of the retention figure
    bins: ReliabilityCurve
    probable: int  # test rows with a probability
    unsafe: int  # of those, flagged unsafe
    kinds: list[tuple[str, str, list[Example]]]  # heading, what is said if there are none, examples
    ranking: CellRanking | None  # of a cell that cannot be measured; then nothing else is shown

    @property
    def compared(self) -> bool:
        """Whether any method was tested against the primary one."""
        return any(row.against for row in self.board)


def cell_view(
    data: ReportData, model: str, dataset: str, anchor: str, style: dict[str, figures.Stroke]
) -> CellView:
    """Gather the tables, figures and response sets of one cell from its test rows."""
    test = data.predictions.filter(model=model, dataset=dataset, split="test").sort("method", "question_id")
    labels = _labels(test)
    board = leaderboard(data, model, dataset)
    curves = _curves(test)
    scored = test.filter((pl.col("method") == data.primary) & pl.col("probability").is_finite())
    probability = floats(scored["probability"])
    unsafe = scored["unsafe"].fill_null(False).to_numpy().astype(bool)
    judged = scored.filter(pl.col("label").is_not_null())
    bins = reliability_curve(floats(judged["probability"]), floats(judged["label"]), BINS)
    rate = labels.rate
    drawn = {
        "retention": figures.retention_figure(curves, style, rate) if curves and rate is not None else None,
        "reliability": figures.reliability_figure(bins) if len(bins.n_rows) else None,
        "histogram": figures.probability_figure(probability, unsafe) if len(probability) else None,
    }
    return CellView(
        anchor=anchor,
        model=model,
        dataset=dataset,
        labels=labels,
        board=board,
        further=further_metrics(data, model, dataset, board),
        plots={name: Picture(drawn[name], f"{anchor}-{name}", *PLOTS[name]) for name in PLOTS},
        drawn=sorted(curves, key=lambda method: (method != data.primary, method)),
        bins=bins,
        probable=len(probability),
        unsafe=int(unsafe.sum()),
        kinds=kinds(e for e in data.examples if (e.model, e.dataset) == (model, dataset)),
        ranking=next((r for r in data.rankings if (r.model, r.dataset) == (model, dataset)), None),
    )


def _labels(test: pl.DataFrame) -> LabelCounts:
    questions = test.unique("question_id", keep="first", maintain_order=True)
    return LabelCounts(questions.height, questions["label"].count(), int(questions["label"].sum() or 0))


def _curves(test: pl.DataFrame) -> dict[str, RetentionCurve]:
    usable = test.filter(pl.col("label").is_not_null() & pl.col("confidence").is_not_nan())
    return {
        str(method): retention_curve(floats(rows["confidence"]), floats(rows["label"]))
        for (method,), rows in usable.group_by("method", maintain_order=True)
    }
