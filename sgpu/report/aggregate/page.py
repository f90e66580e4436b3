"""Render the page of aggregates, in the look of a study's report: self-contained, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import jinja2
from markupsafe import Markup
from matplotlib.figure import Figure

from sgpu.report.aggregate.contents import Contents
from sgpu.report.aggregate.tables import Entry, Table, columns_for
from sgpu.report.look import numbers
from sgpu.report.look.svg import inline
from sgpu.report.study.leaderboard import Score
from sgpu.report.study.page import TEMPLATES, environment_of


def render(contents: Contents, figures: Mapping[str, Figure], notes: Sequence[str] = ()) -> str:
    """The whole page; ``figures`` by metric name."""
    tables = {table.name: table for table in contents.tables}
    drawn: dict[str, Markup] = {
        name: inline(figure, f"mean-{name}", f"Mean {name.upper()} of every method")
        for name, figure in figures.items()
    }
    return (
        _environment()
        .get_template("aggregate.html.j2")
        .render(
            summary=_sentence(tables["overall_mean"]),
            tiles=_tiles(contents),
            notes=[*notes, *_notes(contents)],
            tables=tables,
            ranks=contents.files["ranks"].rows(named=True),
            checks=contents.checks,
            findings=contents.files["inconsistencies"].rows(named=True),
            of_the_paper=contents.of_the_paper,
            figures=drawn,
        )
    )


def _environment() -> jinja2.Environment:
    environment = environment_of(Path(__file__).parent / "templates", TEMPLATES)
    environment.filters.update(
        decimals=numbers.decimals, signed=signed, shown=shown, beneath=beneath, published=published
    )
    environment.globals["metrics"] = [column.metric for column in columns_for([""])]
    return environment


def signed(difference: float | None) -> str:
    """A difference with its sign and four decimals, one more than the values that it is of."""
    if difference is None:
        return "–"
    text = f"{difference:+.4f}".replace("-", "−")
    return text[1:] if text[1:] == "0.0000" else text


def shown(entry: Entry) -> Score:
    """The score with a star where a paired test is significant."""
    return replace(entry.score, text=entry.score.text + "*") if entry.significant else entry.score


def beneath(entry: Entry) -> Score:
    """The score with, beneath it, the published value and ours minus it."""
    if entry.source.published is None:
        return shown(entry)
    line = published(entry)
    if entry.difference is not None:
        line += f" {signed(entry.difference)}"
    return replace(shown(entry), interval=line)


def published(entry: Entry) -> str:
    """The published value, with a dagger where it does not follow from the paper’s own cells, or nothing."""
    if entry.source.published is None:
        return ""
    return numbers.decimals(entry.source.published) + ("†" if entry.source.doubtful else "")


def _sentence(overall: Table) -> str:
    """Which method has the best mean in each metric."""
    parts = []
    for i, column in enumerate(overall.columns):
        rows = [row for block in overall.blocks for row in block.rows]
        best = [row for row in rows if row.entries[i].score.mark == "best"]
        if best:
            names = " and ".join(row.method for row in best)
            parts.append(f"{column.metric.title} {best[0].entries[i].score.text} ({names})")
    if not parts:
        return "No two methods can be compared over all cells."
    return f"Best means over all cells: {', '.join(parts)}."


def _tiles(contents: Contents) -> list[tuple[str, str, str]]:
    cells = contents.cells
    datasets, models = len(cells.names("dataset")), len(cells.names("model"))
    compared = sum(check.compared for check in contents.checks)
    found = sum(len(check.findings) for check in contents.checks)
    methods = cells.names("method")
    missing = sum(cells.frame[metric].null_count() for metric in ("auroc", "auarc", "ece"))
    absent = 3 * (len(cells.pairs()) * len(methods) - cells.frame.height)
    return [
        ("Cells", numbers.count(len(cells.pairs())), f"{_of(datasets, 'data set')}, {_of(models, 'model')}"),
        ("Methods", numbers.count(len(methods)), "with 3 metrics each"),
        ("Missing values", numbers.count(missing + absent), "never counted as zero"),
        ("Published values in doubt", numbers.count(found), f"of {numbers.count(compared)} recomputed"),
    ]


def _notes(contents: Contents) -> list[str]:
    cells, left_out = contents.cells, contents.cells.left_out
    notes = [f"Made from {cells.source} alone: no answers, labels or predictions were read."]
    if contents.of_the_paper:
        notes.append("These cells are the paper’s, so every difference is one of arithmetic or print.")
    else:
        notes.append(
            "These cells are not the paper’s. A difference is shown only where a mean is over the same data "
            "sets and models as the published one; it is one of results, not an error of either."
        )
    if left_out:
        notes.append(f"Left out of the cells: {_of(left_out, 'row')} named “mean”. Means are recomputed.")
    if not any(table.tested for table in contents.tables):
        notes.append("The file holds no paired test, so no difference between methods is called significant.")
    return notes


def _of(number: int, what: str) -> str:
    return f"{numbers.count(number)} {what}{'' if number == 1 else 's'}"
