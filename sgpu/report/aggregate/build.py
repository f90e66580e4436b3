"""Write the report of aggregates: one page, and every table as CSV and LaTeX, every figure as SVG and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
from matplotlib.figure import Figure

from sgpu.errors import UsageError
from sgpu.report.aggregate.cells import Cells, read_cells
from sgpu.report.aggregate.contents import Contents, contents
from sgpu.report.aggregate.figures import mean_figure
from sgpu.report.aggregate.latex import to_latex
from sgpu.report.aggregate.page import render
from sgpu.report.look.svg import save
from sgpu.storage.location import Location

# What a spreadsheet would run of a name; an apostrophe before it makes it text.
_FORMULA = r"^[=+\-@\t\r].+"


def build_aggregate_report(
    cells_file: Path, out: Path, transfer_file: Path | None = None, *, notes: Sequence[str] = ()
) -> Path:
    """Read per-cell numbers, write every table and figure to ``out``, and return the page.

    ``notes`` are said on the page beside those about the numbers.
    Raises UsageError for a file that is not there or a folder that cannot be written, DataError for numbers
    that cannot be used; both before anything is written.
    """
    cells = read_cells(cells_file)
    found = contents(cells, read_cells(transfer_file) if transfer_file else None)
    try:
        out.mkdir(parents=True, exist_ok=True)
        return _write(out, cells, found, notes)
    except OSError as error:
        raise UsageError(
            f"cannot write to the output folder {out}: {error.strerror}. Choose another with --out."
        ) from None


def publish_aggregate_report(cells_file: Path, out: str, transfer_file: Path | None = None) -> Location:
    """As `build_aggregate_report`, to a folder or a prefix in object storage."""
    place = Location.of(out)
    if place.is_local:
        return Location.of(build_aggregate_report(cells_file, place.local, transfer_file))
    with TemporaryDirectory(prefix="sgpu-report-") as folder:
        page = build_aggregate_report(cells_file, Path(folder), transfer_file)
        place.upload(Path(folder), last=page.name)
    return place / page.name


def _write(out: Path, cells: Cells, found: Contents, notes: Sequence[str]) -> Path:
    """Every file of the report; the page comes last, when all that it speaks of is there."""
    figures = _figures(cells, found)
    for name, frame in found.files.items():
        frame.with_columns(pl.col(pl.String).str.replace(_FORMULA, "'$0")).write_csv(out / f"{name}.csv")
    for table in found.tables:
        (out / f"{table.name}.tex").write_text(to_latex(table), "utf-8")
    for metric, figure in figures.items():
        save(figure, out / f"overall_mean_{metric}")
    page = out / "index.html"
    page.write_text(render(found, figures, notes), "utf-8")
    return page


def _figures(cells: Cells, found: Contents) -> dict[str, Figure]:
    overall = next(table for table in found.tables if table.name == "overall_mean")
    drawn = {}
    for column in overall.columns:
        metric = column.metric.metric
        known = cells.frame.drop_nulls(metric).group_by("method").agg(metric)
        single = dict(known.iter_rows())
        drawn[metric] = mean_figure(overall, column.metric, single)
    return drawn
