"""One table of numbers with intervals: what pages show and what their CSV and LaTeX files hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Literal, TypeVar

import polars as pl

from sgpu.report.look.latex import booktabs, escape
from sgpu.report.look.numbers import UNDEFINED, decimals, interval, is_finite, rounded

Mark = Literal["best", "second", ""]
_MARKED = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}
_WIDE = 6  # columns of numbers in groups: more than these span the page
SIGNIFICANT = 0.05
# What a spreadsheet would run of a name; an apostrophe before it makes it text.
_FORMULA = r"^[=+\-@\t\r].+"


@dataclass(frozen=True)
class Measure:
    """A column of numbers; ``higher_is_better`` is None where neither is. ``decimals`` 0 are counts.

    ``group`` names the columns that stand together: a model, a data set or a target.
    """

    name: str
    title: str
    higher_is_better: bool | None = None
    decimals: int = 3
    group: str = ""


AUROC, ECE = Measure("auroc", "AUROC", True), Measure("ece", "ECE", False)
# AUARC is the exact area everywhere. The paper's numbers fit the sum of 20 rectangles, which is what stands
# beside them.
COLUMNS = (AUROC, Measure("auarc", "AUARC", True), ECE, Measure("brier", "Brier", False))
PAPER_COLUMNS = (AUROC, Measure("auarc_20", "AUARC-20", True), ECE)


@dataclass(frozen=True)
class Score:
    """One number of a table with its interval; where there is no finite number it says ``absent``.

    ``p`` is the adjusted p-value of a paired test, None without a test. ``published`` is the paper's number
    in its place; it is ``comparable`` if both are over the same cells, and ``doubtful`` if it does not follow
    from the paper's own cells. ``mark`` compares the number with its column.
    """

    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    absent: str = UNDEFINED
    decimals: int = 3
    p: float | None = None
    published: float | None = None
    comparable: bool = True
    doubtful: bool = False
    mark: Mark = ""

    def __post_init__(self) -> None:
        if not is_finite(self.value):
            for name in ("value", "lo", "hi"):
                object.__setattr__(self, name, None)

    @property
    def text(self) -> str:
        return self.absent if self.value is None else decimals(self.value, self.decimals)

    @property
    def interval(self) -> str:
        return interval(self.lo, self.hi)

    @property
    def significant(self) -> bool:
        return self.p is not None and self.p < SIGNIFICANT

    @property
    def difference(self) -> float | None:
        """Ours minus published; None where they are not over the same cells."""
        if self.value is None or self.published is None or not self.comparable:
            return None
        return self.value - self.published

    def latex(self, beneath: str) -> str:
        """Return the best bold, the second underlined, a star where significant; dashes for no value."""
        if self.value is None:
            return "--"
        text = _MARKED[self.mark] % self.text + ("$^{*}$" if self.significant else "")
        if beneath == "published" and self.published is not None:
            text += f" ({decimals(self.published, self.decimals)})"
        if beneath == "interval" and self.interval:
            text += rf" {{\scriptsize {self.interval}}}"
        return text.replace("−", "$-$")


@dataclass(frozen=True)
class Row:
    """A name for each key of a table and a score for each measure; rows of a ``block`` share a heading."""

    names: tuple[str, ...]
    scores: tuple[Score, ...]
    block: str = ""


@dataclass(frozen=True)
class ReportTable:
    """A table of a report; ``name`` is that of its files and ``frame`` the content of its CSV file.

    ``paper`` holds the rows that only the paper has: other cells than ours. ``beneath`` is what LaTeX prints
    after a value.
    """

    name: str
    title: str
    caption: str
    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]
    frame: pl.DataFrame = field(default_factory=pl.DataFrame)
    paper: ReportTable | None = None
    beneath: Literal["published", "interval", ""] = ""

    @property
    def scores(self) -> list[Score]:
        return [score for row in self.rows for score in row.scores]

    @property
    def blocks(self) -> list[tuple[str, list[Row]]]:
        """The rows under their headings."""
        return [(block, list(rows)) for block, rows in groupby(self.rows, lambda row: row.block)]

    @property
    def tested(self) -> bool:
        """Whether any value has a paired test."""
        return any(score.p is not None for score in self.scores)

    @property
    def compared(self) -> bool:
        """Whether any value has a published one."""
        return any(score.published is not None for score in self.scores)

    @property
    def comparable(self) -> bool:
        """Whether any published value is over the same cells as ours."""
        return any(score.comparable and score.published is not None for score in self.scores)

    @property
    def doubtful(self) -> bool:
        """Whether any published value does not follow from the paper's own cells."""
        return any(score.doubtful for score in self.scores)

    def only(self, metric: str) -> ReportTable:
        """Return the same table with the columns of one metric."""
        kept = [i for i, measure in enumerate(self.measures) if measure.name == metric]
        rows = (replace(row, scores=tuple(row.scores[i] for i in kept)) for row in self.rows)
        return replace(self, measures=tuple(self.measures[i] for i in kept), rows=tuple(rows))

    def latex(self) -> str:
        """Return a ``table`` environment; columns of a single metric are headed by their groups."""
        single = len({measure.name for measure in self.measures}) == 1 and bool(self.measures[0].group)
        groups = [(name, len(list(of))) for name, of in groupby(measure.group for measure in self.measures)]
        named = any(name for name, _ in groups) and not single
        heads = [escape(measure.group) if single else _head(measure) for measure in self.measures]
        blocks = [
            (block, [[*map(escape, row.names), *(s.latex(self.beneath) for s in row.scores)] for row in rows])
            for block, rows in self.blocks
        ]
        return booktabs(
            self.name, " ".join([f"{escape(self.title)}. {escape(self.caption)}", *self._legend()]),
            [*(escape(key.replace("_", " ")) for key in self.keys), *heads], blocks, len(self.keys),
            groups=groups if named else (), page_wide=named and len(self.measures) > _WIDE,
        )  # fmt: skip

    def _legend(self) -> list[str]:
        legend = []
        if any(score.mark for score in self.scores):
            legend.append(r"\textbf{Bold}: best; \underline{underlined}: second.")
        if self.tested:
            legend.append(r"$^{*}$: significant in a paired test within the cell.")
        if self.beneath == "published" and self.compared:
            legend.append(f"In parentheses: the paper{'' if self.comparable else ', on its own cells'}.")
        return legend

    def write(self, folder: Path) -> None:
        """Write the table as CSV and as LaTeX."""
        write_csv(self.frame, folder / f"{self.name}.csv")
        (folder / f"{self.name}.tex").write_text(self.latex(), "utf-8")


def _head(measure: Measure) -> str:
    arrow = {True: r"$\uparrow$", False: r"$\downarrow$", None: ""}[measure.higher_is_better]
    return escape(measure.title) + arrow


def write_csv(frame: pl.DataFrame, path: Path) -> None:
    """Write a frame for spreadsheets, which would run names that begin as formulas do."""
    frame.with_columns(pl.col(pl.String).str.replace(_FORMULA, "'$0")).write_csv(path)


def mark_scores(scores: Sequence[Score], higher_is_better: bool | None) -> list[Score]:
    """Mark the best and the second of a column, as the reader sees it.

    Values that print alike are tied: all of a tie for the first place are best, and then there is no
    second. Nothing is marked where no two values differ, nor where neither is better (None).
    """
    shown = [None if score.value is None else rounded(score.value, score.decimals) for score in scores]
    ranked = sorted((value for value in shown if value is not None), reverse=bool(higher_is_better))
    if higher_is_better is None or len(ranked) < 2 or ranked[0] == ranked[-1]:
        return list(scores)
    marks: dict[float | None, Mark] = {ranked[1]: "second", ranked[0]: "best"}  # of a tie, "best" is kept
    return [replace(score, mark=marks.get(value, "")) for score, value in zip(scores, shown, strict=True)]


AnyRow = TypeVar("AnyRow", bound=Row)


def mark_rows(
    rows: Sequence[AnyRow], measures: Sequence[Measure], within: Callable[[AnyRow], object] = lambda _: None
) -> list[AnyRow]:
    """Mark the best and the second of every column among the rows for which ``within`` is the same."""
    marked = list(rows)
    for group in {within(row) for row in rows}:
        at = [i for i, row in enumerate(rows) if within(row) == group]
        columns = zip(*(rows[i].scores for i in at), strict=True)
        better = [measure.higher_is_better for measure in measures]
        scores = [mark_scores(column, way) for column, way in zip(columns, better, strict=True)]
        for i, own in zip(at, zip(*scores, strict=True), strict=True):
            marked[i] = replace(rows[i], scores=own)
    return marked
