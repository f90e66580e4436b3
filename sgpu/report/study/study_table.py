"""A small table of the report: names, numbers with intervals, and what the paper prints in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from sgpu.report.look.latex import booktabs, escape
from sgpu.report.study import published
from sgpu.report.study.leaderboard import COLUMNS, PAPER_COLUMNS, Measure, Score, marked_rows

_TABLES = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_bytes())
PAPER, DIFFERENCE = "_published", "_difference"


@dataclass(frozen=True)
class StudyTable:
    """``frame`` holds ``keys`` (text) and for every measure its value, if known with ``_lo`` and ``_hi``.

    ``marks_within`` are the keys inside of which the best and the second are marked.
    """

    name: str  # as in sgpu/report/published
    title: str
    caption: str
    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    frame: pl.DataFrame = field(default_factory=pl.DataFrame)
    marks_within: tuple[str, ...] = ()

    @property
    def same_cells(self) -> bool:
        """Whether a row of the paper's with equal keys is over the same data."""
        return "dataset" in self.keys

    @property
    def ours(self) -> list[dict[str, Any]]:
        """Rows that hold a value of ours."""
        return [row for row in self.rows() if any(row[m.name] is not None for m in self.measures)]

    @property
    def paper_only(self) -> list[dict[str, Any]]:
        """Rows that only the paper has: other cells than this study's."""
        return [row for row in self.rows() if all(row[m.name] is None for m in self.measures)]

    @property
    def compared(self) -> bool:
        """Whether a value of ours stands beside a published one."""
        return any(
            row[m.name] is not None and row.get(m.name + PAPER) is not None
            for row in self.rows()
            for m in self.measures
        )

    @property
    def printed(self) -> list[Measure]:
        """The measures that the paper's table has."""
        return [measure for measure in self.measures if measure.name + PAPER in self.frame.columns]

    def rows(self) -> list[dict[str, Any]]:
        """All rows in the order of the keys, numbers among them by size."""
        numbers = [pl.col(key).cast(pl.Float64, strict=False).alias(f"{key} as number") for key in self.keys]
        order = [name for key in self.keys for name in (f"{key} as number", key)]
        return (
            self.frame.with_columns(numbers)
            .sort(order, nulls_last=True)
            .select(self.frame.columns)
            .to_dicts()
        )

    def scores(self) -> list[tuple[Score, ...]]:
        """What is shown of `ours`, row by row, with marks."""
        rows = self.ours
        scores = [tuple(_score(measure, row) for measure in self.measures) for row in rows]
        groups = [tuple(row[key] for key in self.marks_within) for row in rows]
        for group in set(groups):
            positions = [i for i, other in enumerate(groups) if other == group]
            within = marked_rows([scores[position] for position in positions], self.measures)
            for position, marks in zip(positions, within, strict=True):
                scores[position] = marks
        return scores

    def latex(self) -> str:
        """As booktabs, with the published value in parentheses where there is one."""
        heads = [escape(key.replace("_", " ")) for key in self.keys]
        heads += [escape(measure.title) for measure in self.measures]
        rows = [
            [escape(str(row[key] or "")) for key in self.keys]
            + [_cell(measure, score, row) for measure, score in zip(self.measures, scores, strict=True)]
            for row, scores in zip(self.ours, self.scores(), strict=True)
        ]
        caption = f"{escape(self.title)}. {escape(self.caption)}"
        if self.compared:
            caption += " In parentheses: the paper" + ("." if self.same_cells else ", on its own cells.")
        return booktabs(self.name, caption, heads, [("", rows)], len(self.keys))


def study_table(name: str) -> StudyTable:
    """A table of tables.yaml, with no rows yet."""
    table = _TABLES[name]
    named = {column.name: column for column in (*COLUMNS, *PAPER_COLUMNS)}
    measures = (named[item] if isinstance(item, str) else Measure(**item) for item in table["measures"])
    return StudyTable(
        name, table["title"], table["caption"], tuple(table["keys"]), tuple(measures),
        marks_within=tuple(table.get("marks_within", ())),
    )  # fmt: skip


def wide(frame: pl.DataFrame, keys: Sequence[str], metrics: Sequence[str]) -> pl.DataFrame:
    """One row for each ``keys``, in order of appearance, with value, ``_lo`` and ``_hi`` of every metric."""
    rows = frame.select(keys).unique(maintain_order=True)
    for metric in metrics:
        own = frame.filter(metric=metric).select(
            *keys,
            *(
                pl.col(name).cast(pl.Float64).alias(metric + end)
                for name, end in (("value", ""), ("lo", "_lo"), ("hi", "_hi"))
            ),
        )
        rows = rows.join(own, on=keys, how="left", maintain_order="left")
    return rows


def beside_published(table: StudyTable) -> StudyTable:
    """The table with the paper's values and differences, and with the paper's rows that have none of ours.

    A difference is given only where both are over the same cells.
    """
    paper = published.read_published_table(table.name)
    named = [pl.col(key).cast(pl.String).fill_null("").alias(key) for key in table.keys]
    both = [measure.name for measure in table.measures if measure.name in paper.columns]
    values = [pl.col(name).cast(pl.Float64).alias(name + PAPER) for name in both]
    joined = table.frame.with_columns(named).join(
        paper.select(*named, *values), on=list(table.keys), how="full", coalesce=True,
        maintain_order="left_right",
    )  # fmt: skip
    gaps = [(pl.col(name) - pl.col(name + PAPER)).alias(name + DIFFERENCE) for name in both]
    return replace(table, frame=joined.with_columns(gaps if table.same_cells else []))


def _score(measure: Measure, row: dict[str, Any]) -> Score:
    value, lo, hi = (row.get(measure.name + end) for end in ("", "_lo", "_hi"))
    return Score.of(value, lo, hi, measure.text)


def _cell(measure: Measure, score: Score, row: dict[str, Any]) -> str:
    paper = row.get(measure.name + PAPER)
    beside = f" ({measure.text(paper)})" if paper is not None and score.value is not None else ""
    return score.latex() + beside
