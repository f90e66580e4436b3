"""Write the report of aggregates: one page, and every table as CSV and LaTeX, every figure as SVG and PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
from matplotlib.figure import Figure

from sgpu.errors import UsageError
from sgpu.report.aggregate.cells import read_cells
from sgpu.report.aggregate.contents import Contents, contents
from sgpu.report.look import numbers, template
from sgpu.report.look.svg import inline, save
from sgpu.report.study.data import ReportData
from sgpu.report.study.figures import dot_figure
from sgpu.report.study.published import METRICS
from sgpu.report.table import PAPER_COLUMNS, ReportTable, write_csv
from sgpu.storage.location import Location


def render_aggregates(contents: Contents, figures: Mapping[str, Figure], notes: Sequence[str] = ()) -> str:
    """Render the whole page; ``figures`` by metric name."""
    tables = {table.name: table for table in contents.tables}
    return template("aggregate.html.j2", format_difference=format_difference, of=_of, inline=inline).render(
        metrics=PAPER_COLUMNS,
        summary=_sentence(tables["overall_mean"]),
        cells=contents.cells,
        missing=contents.cells.missing(),
        notes=notes,
        tables=tables,
        tested=any(table.tested for table in contents.tables),
        ranks=contents.files["ranks"].rows(named=True),
        checks=contents.checks,
        findings=contents.files["inconsistencies"].rows(named=True),
        of_the_paper=contents.of_the_paper,
        figures=figures,
    )


def format_difference(difference: float | None) -> str:
    """Return a difference with its sign and four decimals, one more than its values have."""
    return "–" if difference is None else numbers.format_signed(difference, 4)


def _sentence(overall: ReportTable) -> str:
    """Which method has the best mean in each metric."""
    parts = []
    for i, column in enumerate(overall.measures):
        best = [row for row in overall.rows if row.scores[i].mark == "best"]
        if best:
            names = " and ".join(row.names[0] for row in best)
            parts.append(f"{column.title} {best[0].scores[i].text} ({names})")
    if not parts:
        return "No two methods can be compared over all cells."
    return f"Best means over all cells: {', '.join(parts)}."


def _of(number: int, what: str) -> str:
    return f"{numbers.count(number)} {what}{'' if number == 1 else 's'}"


def build_aggregate_report(
    cells_file: Path, out: Path, transfer_file: Path | None = None, *, notes: Sequence[str] = ()
) -> Path:
    """Read per-cell numbers, write every table and figure to ``out``, and return the page.

    ``notes`` are said on the page beside those about the numbers.
    Raises UsageError for a file that is not there or a folder that cannot be written, DataError for numbers
    that cannot be used; both before anything is written.
    """
    report = contents(read_cells(cells_file), read_cells(transfer_file) if transfer_file else None)
    try:
        out.mkdir(parents=True, exist_ok=True)
        return _write(out, report, notes)
    except OSError as error:
        raise UsageError(
            f"cannot write to the output folder {out}: {error.strerror}. Choose another with --out."
        ) from None


def publish_aggregate_report(cells_file: Path, out: str, transfer_file: Path | None = None) -> Location:
    """As `build_aggregate_report`, to a folder or a prefix in object storage."""
    location = Location.of(out)
    if location.is_local:
        return Location.of(build_aggregate_report(cells_file, location.local, transfer_file))
    with TemporaryDirectory(prefix="sgpu-report-") as folder:
        page = build_aggregate_report(cells_file, Path(folder), transfer_file)
        location.upload(Path(folder), last=page.name)
    return location / page.name


def _write(out: Path, report: Contents, notes: Sequence[str]) -> Path:
    """Every file of the report; the page comes last, when all that it speaks of is there."""
    figures = _figures(report)
    for name, frame in report.files.items():
        write_csv(frame, out / f"{name}.csv")
    for table in report.tables:
        table.write(out)
    for metric, figure in figures.items():
        save(figure, out / f"overall_mean_{metric}")
    page = out / "index.html"
    page.write_text(render_aggregates(report, figures, notes), "utf-8")
    return page


def _figures(report: Contents) -> dict[str, Figure]:
    """Draw each metric: the means, their cells as small dots, and what the paper has over the same cells."""
    overall = next(table for table in report.tables if table.name == "overall_mean")
    drawn = {}
    for i, column in enumerate(overall.measures):
        values = report.cells.frame.drop_nulls(column.name).group_by("method").agg(column.name)
        label = f"{column.title} ({'higher' if column.higher_is_better else 'lower'} is better)"
        scores = [(row.names[0], row.scores[i]) for row in overall.rows]
        scores = [(name, s if s.comparable else replace(s, published=None)) for name, s in scores]
        drawn[column.name] = dot_figure(scores, label, dict(values.iter_rows()))
    return drawn


NOTE = (
    "AUARC-20 is the sum of 20 rectangles, which the paper's numbers fit; AUARC, the exact area, is in "
    "metrics.csv. A star marks a method that differs from SGPU in a paired test within the cell, after "
    "Holm's correction."
)


def cells_frame(data: ReportData) -> pl.DataFrame:
    """Return one row per cell and method: METRICS, and the p-values of their differences."""
    key = ["dataset", "model", "method"]
    wide = data.metrics.select(key).unique(maintain_order=True)
    for name in METRICS:
        value = data.metrics.filter(metric=name).select(*key, pl.col("value").alias(name))
        p = data.comparisons.filter(metric=name).select(*key, pl.col("p_holm").alias(f"{name}_p"))
        wide = wide.join(value, on=key, how="left").join(p, on=key, how="left")
    return wide.sort(key)


def build_study_aggregates(out: Path, data: ReportData) -> Path | None:
    """Write ``out/report/aggregate``; returns its page, None where the study measured nothing."""
    frame = cells_frame(data)
    if frame.is_empty():
        return None
    folder = out / "report" / "aggregate"
    folder.mkdir(parents=True, exist_ok=True)
    cells = folder / "cells.csv"
    frame.write_csv(cells)
    return build_aggregate_report(cells, folder, notes=(NOTE,))
