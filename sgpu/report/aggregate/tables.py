"""Tables of methods to be printed, also as LaTeX and as figures: best and second marked, the paper beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Decimal
from itertools import groupby

import polars as pl
from matplotlib.figure import Figure

from sgpu.report.look.latex import booktabs, escape
from sgpu.report.look.numbers import decimals
from sgpu.report.look.svg import PALETTE
from sgpu.report.study.figures import dot_rows, ring
from sgpu.report.study.leaderboard import PAPER_COLUMNS, SIGNIFICANT, Mark, Measure, Score, marked_rows
from sgpu.report.study.published import FAMILIES, family

# Halves are rounded up, as in the paper: 0.7565 is printed as 0.757, whichever side of it its nearest
# binary fraction lies.
_PRINTED = Decimal("0.001")


@dataclass(frozen=True)
class GroupedMeasure(Measure):
    """A metric, in a group of columns (a model or a data set; empty where there is one group)."""

    group: str = ""


@dataclass(frozen=True)
class Value:
    """What is known of one place in a table; ``mark`` compares it with its column.

    ``n`` of ``of`` cells are known; without all of them there is no value. ``p`` is the adjusted p-value of
    a paired test, None where none was made. ``doubtful``: the published value does not follow from the
    paper's own cells. ``comparable``: ours is over the same cells as the published one.
    """

    value: float | None
    n: int = 1
    of: int = 1
    p: float | None = None
    published: float | None = None
    comparable: bool = True
    doubtful: bool = False
    mark: Mark = ""

    @property
    def score(self) -> Score:
        """The value as printed."""
        if self.value is None:
            return Score("missing" if self.of == 1 else f"in {self.n} of {self.of} cells")
        shown = float(Decimal(str(self.value)).quantize(_PRINTED, ROUND_HALF_UP))
        return Score(decimals(shown), value=shown, mark=self.mark)

    @property
    def significant(self) -> bool:
        return self.p is not None and self.p < SIGNIFICANT

    def latex(self) -> str:
        """As printed, with a star where the paired test is significant."""
        return self.score.latex() + ("$^{*}$" if self.significant and self.value is not None else "")

    @property
    def difference(self) -> float | None:
        """Ours minus published, None where they are not over the same cells."""
        if self.value is None or self.published is None or not self.comparable:
            return None
        return self.value - self.published


@dataclass(frozen=True)
class Row:
    method: str
    entries: tuple[Value, ...]


@dataclass(frozen=True)
class Block:
    """Rows under one heading: a family of methods, or a data set."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class MethodTable:
    """One table of the report; ``name`` is that of its files, ``frame`` what stands in its CSV."""

    name: str
    title: str
    caption: str
    columns: tuple[GroupedMeasure, ...]
    blocks: tuple[Block, ...]
    frame: pl.DataFrame = field(default_factory=pl.DataFrame)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Groups of columns from the left, with their widths."""
        return [(group, len(list(columns))) for group, columns in groupby(c.group for c in self.columns)]

    @property
    def tested(self) -> bool:
        """Whether any value has a paired test."""
        return any(entry.p is not None for entry in self.entries())

    @property
    def compared(self) -> bool:
        """Whether any value has a published one."""
        return any(entry.published is not None for entry in self.entries())

    @property
    def comparable(self) -> bool:
        """Whether any published value is over the same cells as ours."""
        return any(e.comparable and e.published is not None for e in self.entries())

    @property
    def doubtful(self) -> bool:
        """Whether any published value does not follow from the paper's own cells."""
        return any(entry.doubtful for entry in self.entries())

    def entries(self) -> list[Value]:
        return [entry for block in self.blocks for row in block.rows for entry in row.entries]

    def only(self, metric: str) -> MethodTable:
        """The same table with the columns of one metric."""
        kept = [i for i, column in enumerate(self.columns) if column.name == metric]
        blocks = tuple(
            replace(
                block,
                rows=tuple(replace(row, entries=tuple(row.entries[i] for i in kept)) for row in block.rows),
            )
            for block in self.blocks
        )
        return replace(self, columns=tuple(self.columns[i] for i in kept), blocks=blocks)


def columns_for(groups: Sequence[str]) -> tuple[GroupedMeasure, ...]:
    """Return the METRICS of every group, group by group."""
    return tuple(
        GroupedMeasure(**vars(measure), group=group) for group in groups for measure in PAPER_COLUMNS
    )


def ranked_rows(
    methods: Sequence[str], columns: Sequence[GroupedMeasure], look_up: Callable[[str, GroupedMeasure], Value]
) -> list[Row]:
    """One row a method; in every column the best and the second are marked over all these rows."""
    values = [[look_up(method, column) for column in columns] for method in methods]
    marks = marked_rows([[value.score for value in row] for row in values], columns)
    return [
        Row(method, tuple(replace(value, mark=score.mark) for value, score in zip(row, scores, strict=True)))
        for method, row, scores in zip(methods, values, marks, strict=True)
    ]


def by_family(rows: Sequence[Row]) -> tuple[Block, ...]:
    """Rows under their families; methods of no known family come last."""
    titles: dict[str | None, str] = {name: name.capitalize() for name in FAMILIES}
    titles[None] = "Other"
    by_kind = {kind: tuple(row for row in rows if family(row.method) == kind) for kind in titles}
    return tuple(Block(titles[kind], members) for kind, members in by_kind.items() if members)


_WIDE = 6  # columns of numbers: more than these span the page


def to_latex(table: MethodTable) -> str:
    """A ``table`` environment: best bold, second underlined, a star where a paired test is significant."""
    star = r" $^{*}$: significant in a paired test within the cell." if table.tested else ""
    legend = r"\textbf{Bold}: best; \underline{underlined}: second." + star
    blocks = [
        (block.title, [[escape(row.method), *(entry.latex() for entry in row.entries)] for row in block.rows])
        for block in table.blocks
    ]
    return booktabs(
        table.name, f"{escape(table.title)}. {escape(table.caption)} {legend}",
        ["Method", *(_head(column) for column in table.columns)], blocks,
        groups=table.groups, page_wide=len(table.columns) > _WIDE,
    )  # fmt: skip


def _head(measure: Measure) -> str:
    return rf"{measure.title}$\{'uparrow' if measure.higher_is_better else 'downarrow'}$"


def mean_figure(table: MethodTable, measure: Measure, by_method: Mapping[str, Sequence[float]]) -> Figure:
    """One line a method, in the order of ``table``: cells as small dots, mean as a disc, published as a ring.

    ``by_method`` holds the values of the single cells. Methods without a mean show their cells only, and a
    published mean over other cells is not drawn.
    """
    rows = [row for block in table.only(measure.name).blocks for row in block.rows]
    better = "higher" if measure.higher_is_better else "lower"
    names = [row.method for row in rows]
    figure, axes = dot_rows(names, f"{measure.title} ({better} is better)", left=0.32)
    for at, row in enumerate(rows):
        single = by_method.get(row.method, ())
        axes.scatter(single, [at] * len(single), s=9, color=PALETTE["muted"], alpha=0.35, linewidth=0)
        entry = row.entries[0]
        if entry.value is not None:
            axes.scatter([entry.value], [at], s=34, color=PALETTE["accent"], linewidth=0, zorder=3)
        if entry.published is not None and entry.comparable:
            ring(axes, entry.published, at)
    return figure
