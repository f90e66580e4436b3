"""The table of methods that a study ends with on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgpu.report.study.data import ReportData
from sgpu.report.study.leaderboard import MethodRow, leaderboard, mean_score, overview
from sgpu.report.table import COLUMNS, Score

MOST_METHODS = 14
AUROC, ECE = ([column.name for column in COLUMNS].index(name) for name in ("auroc", "ece"))
ABSENT = (Score(absent="not available"),) * len(COLUMNS)


def show_methods(console: Console, data: ReportData) -> None:
    """Print AUROC and ECE of each method, best first; with several cells, their means over the cells.

    Of cells that cannot be measured (no labels, or one class only) it prints the reason.
    """
    for why in dict.fromkeys(ranking.why for ranking in data.rankings):
        console.print(f"{escape(why)} The report ranks the questions.", soft_wrap=True)
    boards = {cell: board for cell in data.cells() if _is_ranked(board := leaderboard(data, *cell))}
    if not boards:
        return
    several = len(boards) > 1
    table = Table(box=None, pad_edge=False)
    table.add_column(f"means of {len(boards)} cells" if several else "method", overflow="fold")
    for title in ("AUROC", "lowest to highest" if several else "95% interval", "ECE"):
        table.add_column(title, justify="right", no_wrap=True)
    areas = [{row.method: row.scores for row in board if row.scores} for board in boards.values()]
    ordered = [column.name for column in overview(boards).measures]
    measured = [method for method in ordered if any(method in area for area in areas)]
    for method in measured[:MOST_METHODS]:
        auroc, ece = ([area.get(method, ABSENT)[i] for area in areas] for i in (AUROC, ECE))
        table.add_row(escape(method), _text(auroc), _spread(auroc), _text(ece))
    console.print(table)
    if (more := len(measured) - MOST_METHODS) > 0:
        console.print(f"further methods in the report: {more}")


def _is_ranked(board: Sequence[MethodRow]) -> bool:
    return any(row.scores and row.auroc.value is not None for row in board)


def _text(scores: Sequence[Score]) -> str:
    return scores[0].text if len(scores) == 1 else mean_score(scores).text


def _spread(scores: Sequence[Score]) -> str:
    """Return the interval of a single score, or the range of several."""
    if len(scores) == 1:
        return scores[0].interval
    values = [score.value for score in scores if score.value is not None]
    return f"{min(values):.3f} to {max(values):.3f}" if values else ""
