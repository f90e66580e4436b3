"""The small tables of a study, each with the figure that goes with it."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from sgpu.report.look.svg import inline
from sgpu.report.study.any_size import NAME, any_size_figure, in_words
from sgpu.report.study.data import ReportData
from sgpu.report.study.study_table import StudyTable
from sgpu.report.study.study_tables import study_tables
from sgpu.report.study.table_figure import table_figure

DRAWN_FROM, DRAWN_TO = 2, 16  # rows


@dataclass(frozen=True)
class TableView:
    """A table with its figure, if there is enough to draw, and what is read aloud in place of it."""

    table: StudyTable
    figure: Figure | None
    spoken: str = ""

    @property
    def markup(self) -> Markup | None:
        """The figure as it stands in the page."""
        return None if self.figure is None else inline(self.figure, f"table-{self.table.name}", self.spoken)


def table_views(data: ReportData) -> list[TableView]:
    """The study's tables, with a figure of each that has several rows but not too many to be told apart."""
    return [_view(table) for table in study_tables(data)]


def _view(table: StudyTable) -> TableView:
    if table.name == NAME:
        return TableView(table, any_size_figure(table), in_words(table))
    drawn = DRAWN_FROM <= len(table.ours) <= DRAWN_TO
    return TableView(
        table, table_figure(table) if drawn else None, f"{table.title}, {table.measures[0].title}"
    )
