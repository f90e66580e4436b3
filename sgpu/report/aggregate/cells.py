"""Per-cell numbers, read from a file or a run's own metrics.csv, and the means over them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sgpu.errors import DataError, UsageError
from sgpu.report.study.published import METRICS, in_paper_spelling, paper_order, read_published_table
from sgpu.report.table import PAPER_COLUMNS

KEY = ("dataset", "model", "method")
P_COLUMNS = tuple(f"{metric}_p" for metric in METRICS)
AGGREGATE = "mean"  # a row of this data set or model is an aggregate already, not a cell
PAPER_SHARE = 0.5
_LONG = ("metric", "value")
_ROW = "file row"  # counted as an editor does: the header is row 1


@dataclass(frozen=True)
class Cells:
    """The checked numbers of a file.

    ``frame`` holds KEY, METRICS (null: missing) and P_COLUMNS: the p-value, adjusted for multiple
    comparisons, of a paired test within the cell against the method that the file's author names (null:
    no test). ``left_out`` counts rows that were aggregates.
    """

    source: str
    frame: pl.DataFrame
    left_out: int = 0

    def names(self, column: str) -> list[str]:
        """The names of a KEY column: first those of the paper in its order, then others as they appear."""
        names = self.frame[column].unique(maintain_order=True).to_list()
        printed = [name for name in paper_order(column) if name in names]
        return printed + [name for name in names if name not in printed]

    def pairs(self) -> set[tuple[str, str]]:
        """Every (dataset, model)."""
        return set(self.frame.select("dataset", "model").unique().iter_rows())

    def missing(self) -> int:
        """How many values of METRICS are not known, of all methods in all cells."""
        present = sum(self.frame[metric].count() for metric in METRICS)
        return len(METRICS) * len(self.pairs()) * len(self.names("method")) - present

    def are_of_the_paper(self) -> bool:
        """Whether at least PAPER_SHARE of the values are those that the paper prints for the same cells."""
        both = self.frame.join(read_published_table("summary"), on=KEY, how="inner", suffix="_paper")
        equal = sum(int((both[m].round(3) == both[f"{m}_paper"]).sum()) for m in METRICS)
        n_values = sum(self.frame.height - self.frame[m].null_count() for m in METRICS)
        return n_values > 0 and equal >= PAPER_SHARE * n_values


def read_cells(path: Path) -> Cells:
    """Read and check ``path``.

    Wide form: columns dataset, model, method, auroc, auarc_20, ece, and optionally a p-value of each
    (auroc_p and so on).
    Long form, as `sgpu benchmark` writes metrics.csv: dataset, model, method, metric, value; other metrics
    are passed over. Registered names become those of the paper.

    Raises UsageError if there is no such file, DataError for content that cannot be used.
    """
    frame = _read(path)
    long = set(_LONG) <= set(frame.columns)
    required = (*KEY, *(_LONG if long else METRICS))
    if absent := [column for column in required if column not in frame.columns]:
        raise DataError(
            f"{path}: no column {', '.join(absent)}. It must have the columns {', '.join((*KEY, *METRICS))}, "
            f"or {', '.join((*KEY, *_LONG))}; it has {', '.join(frame.columns)}."
        )
    frame = _named(frame, path)
    aggregate = pl.any_horizontal(pl.col("dataset", "model").str.to_lowercase() == AGGREGATE)
    left_out = int(frame.select(aggregate.sum()).item())
    frame = frame.filter(~aggregate)
    frame = _checked(frame, path, long)
    if frame.is_empty():
        raise DataError(f"{path}: there is no row with the numbers of a cell. Give at least one.")
    return Cells(str(path), frame, left_out)


def _read(path: Path) -> pl.DataFrame:
    if not path.is_file():
        raise UsageError(f"there is no file {path}. Give the per-cell numbers as a CSV file.")
    try:
        frame = pl.read_csv(path, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path} cannot be read as CSV in UTF-8: {reason}. Write it with commas and one header row."
        ) from None
    frame = frame.rename({column: column.strip() for column in frame.columns})
    return frame.with_columns(pl.col(pl.String).str.strip_chars()).with_row_index(_ROW, offset=2)


def _named(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    for column in KEY:
        blank = frame.filter(pl.col(column).is_null() | (pl.col(column) == ""))
        if not blank.is_empty():
            row = blank[_ROW][0]
            raise DataError(f"{path}, row {row}: {column} is empty. Name it, or remove the row.")
    return frame.with_columns(in_paper_spelling(frame[column]) for column in KEY)


def _checked(frame: pl.DataFrame, path: Path, long: bool) -> pl.DataFrame:
    """KEY, METRICS and P_COLUMNS as numbers, one row for each key."""
    if long:
        frame = frame.filter(pl.col("metric").is_in(METRICS))
    _refuse_duplicates(frame, path, (*KEY, "metric") if long else KEY)
    columns = ("value",) if long else [name for name in (*METRICS, *P_COLUMNS) if name in frame.columns]
    frame = frame.with_columns(_numbers(frame, column, path) for column in columns)
    if long:
        value = pl.col("value")
        metrics = [value.filter(pl.col("metric") == metric).first().alias(metric) for metric in METRICS]
        frame = frame.group_by(KEY, maintain_order=True).agg(metrics)
    untested = [name for name in P_COLUMNS if name not in frame.columns]
    frame = frame.with_columns(pl.lit(None, pl.Float64).alias(name) for name in untested)
    return frame.select(*KEY, *METRICS, *P_COLUMNS)


def _numbers(frame: pl.DataFrame, column: str, path: Path) -> pl.Series:
    """The column as Float64, null where it is empty or NaN; DataError unless within 0 and 1."""
    text = frame[column]
    value = text.cast(pl.Float64, strict=False).fill_nan(None)
    missing = text.is_null() | (text == "") | (text.str.to_lowercase() == "nan")
    wrong = frame.filter(~missing & ~value.is_between(0, 1).fill_null(False))
    if not wrong.is_empty():
        row = wrong.row(0, named=True)
        name = row["metric"] if column == "value" else column
        more = f" Further wrong values in this column: {wrong.height - 1}." if wrong.height > 1 else ""
        raise DataError(
            f"{path}, row {row[_ROW]} ({row['dataset']}, {row['model']}, {row['method']}): {name} is "
            f"{row[column]!r}; it must be a number from 0 to 1. Write a share with a decimal point, not a "
            f"percentage or a decimal comma, and leave it empty if it is unknown.{more}"
        )
    return value.alias(column)


def _refuse_duplicates(frame: pl.DataFrame, path: Path, key: tuple[str, ...]) -> None:
    twice = frame.filter(pl.struct(key).is_duplicated())
    if not twice.is_empty():
        first = twice.row(0, named=True)
        rows = twice.filter(pl.all_horizontal(pl.col(name) == first[name] for name in key))[_ROW]
        raise DataError(
            f"{path}, rows {', '.join(map(str, rows))}: {', '.join(first[name] for name in key)} is there "
            f"{len(rows)} times; a cell has one row a method. Keep one."
        )


HIGHER_IS_BETTER = {measure.name: bool(measure.higher_is_better) for measure in PAPER_COLUMNS}
_EXACT = 9  # decimals: beyond the noise of adding up, far below what is printed


def average_rank(cells: Cells, metric: str) -> pl.DataFrame:
    """Per method, best first: average rank in ``metric`` (1 is best) and the cells it wins.

    Ranks are taken within each cell, over the cells in which every method is known. Values that print
    alike share their rank and their win. Columns method, rank, wins, n_cells.
    """
    n_methods = cells.frame["method"].n_unique()
    whole = cells.frame.filter(pl.col(metric).count().over("dataset", "model") == n_methods)
    shown = pl.col(metric).round(3)
    best = shown.max() if HIGHER_IS_BETTER[metric] else shown.min()
    won = (shown == best.over("dataset", "model")).cast(pl.Float64)
    ranked = whole.with_columns(
        rank=shown.rank("average", descending=HIGHER_IS_BETTER[metric]).over("dataset", "model"),
        win=won / won.sum().over("dataset", "model"),
    )
    return (
        ranked.group_by("method", maintain_order=True)
        .agg(
            pl.col("rank").mean().round(_EXACT),
            pl.col("win").sum().round(_EXACT).alias("wins"),
            pl.len().cast(pl.Int64).alias("n_cells"),
        )
        .sort("rank", "method")
    )


def means(cells: Cells, *by: str) -> pl.DataFrame:
    """Per method, and per model or data set where ``by`` names it: METRICS averaged over all other cells.

    Beside each, ``n_<metric>`` of ``n_cells`` are known; a mean over fewer cells than the others is none.
    Rows for every method and group, in the order of the paper: methods first, then groups.
    """
    pairs = cells.frame.select("dataset", "model").unique(maintain_order=True)
    groups = pairs.group_by(by).len("n_cells") if by else pairs.select(pl.len().alias("n_cells"))
    grid = pl.DataFrame({"method": cells.names("method")}).join(groups, how="cross")
    averages = cells.frame.group_by([*by, "method"]).agg(
        *(pl.col(metric).mean().round(_EXACT) for metric in METRICS),
        *(pl.col(metric).count().alias(f"n_{metric}") for metric in METRICS),
    )
    joined = grid.join(averages, on=[*by, "method"], how="left").with_columns(
        pl.col([f"n_{metric}" for metric in METRICS]).fill_null(0)
    )
    complete = [
        pl.when(pl.col(f"n_{metric}") == pl.col("n_cells")).then(pl.col(metric)).alias(metric)
        for metric in METRICS
    ]
    order = [pl.col(name).cast(pl.Enum(cells.names(name))) for name in ("method", *by)]
    return joined.with_columns(complete).sort(order).select(*by, "method", *METRICS, pl.col(r"^n_.*$"))
