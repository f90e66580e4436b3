"""Which small tables a study can fill: those of the paper's sensitivity studies and appendices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import polars as pl
from markupsafe import Markup
from matplotlib.figure import Figure

from sgpu.report.look.svg import inline
from sgpu.report.study.any_size import ANY_SIZE, any_size_figure, any_size_frame, in_words
from sgpu.report.study.data import ReportData
from sgpu.report.study.figures import table_figure
from sgpu.report.study.leaderboard import COLUMNS, Measure
from sgpu.report.study.published import METRICS, in_paper_spelling
from sgpu.report.study.study_table import StudyTable, beside_published, wide

THREE = COLUMNS[:3]
AUROC = COLUMNS[0]
CELL = ("dataset", "model")
KERNELS = {
    "rbf": ("RBF", ""),
    "matern05": ("Matern", "0.5"),
    "matern15": ("Matern", "1.5"),
    "matern25": ("Matern", "2.5"),
}
SGPU = "sgpu"
UNPUBLISHED = {"unsafe", ANY_SIZE.name}  # tables that the paper does not have


def study_tables(data: ReportData) -> list[StudyTable]:
    """The tables that have a row of the study's own, in the order of the paper."""
    tables = [replace(table, frame=_named(frame(data))) for table, frame in TABLES]
    beside = [table if table.name in UNPUBLISHED else beside_published(table) for table in tables]
    return [table for table in beside if table.ours]


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Data sets, models and methods as the paper spells them."""
    names = [name for name in ("dataset", "model", "method") if name in frame.columns and frame.height]
    return frame.with_columns(in_paper_spelling(frame[name]).alias(name) for name in names)


def _intervals(data: ReportData) -> pl.DataFrame:
    rows = data.metrics.filter(method=SGPU, metric="auroc")
    half = (pl.col("auroc_hi") - pl.col("auroc_lo")) / 2
    return wide(rows, CELL, ["auroc"]).with_columns(half.alias("ci_half_width"))


def _unsafe(data: ReportData) -> pl.DataFrame:
    names = ["unsafe_share", "accuracy_unsafe", "accuracy_kept", "auroc", "auroc_kept"]
    return wide(data.metrics.filter(method=SGPU), CELL, names)


def _refitted(kind: str, *keys: str) -> Callable[[ReportData], pl.DataFrame]:
    """SGPU under each value of one setting, which is called as the last of ``keys``."""

    def frame(data: ReportData) -> pl.DataFrame:
        own = data.sensitivity.filter(kind=kind, method=SGPU)
        return wide(own.rename({"setting": keys[-1]}), keys, METRICS)

    return frame


def _kernels(data: ReportData) -> pl.DataFrame:
    names = [
        pl.col("setting").replace_strict({k: v[i] for k, v in KERNELS.items()}, default=None).alias(name)
        for i, name in enumerate(("kernel", "nu"))
    ]
    return (
        data.sensitivity.filter(kind="kernel", method=SGPU, metric="auroc")
        .group_by("setting", maintain_order=True)
        .agg(pl.col("value").mean().alias("inner_val_auroc"), pl.len().cast(pl.Float64).alias("cells"))
        .with_columns(names)
        .drop("setting")
    )


def _transfer_matrix(data: ReportData) -> pl.DataFrame:
    rows = data.sensitivity.filter(pl.col("kind") == "trained_on")
    rows = rows.rename({"setting": "trained_on", "model": "tested_on"})
    frame = wide(rows, ["dataset", "trained_on", "tested_on"], METRICS)
    # Two columns of models: each in the paper's spelling.
    models = ("trained_on", "tested_on") if frame.height else ()
    return frame.with_columns(in_paper_spelling(frame[name].alias("model")).alias(name) for name in models)


def _judges(data: ReportData) -> pl.DataFrame:
    """Means over the cells; a method that is undefined in one of them has none."""
    judged = data.sensitivity.filter(pl.col("kind") == "judge")
    key = ["setting", "method"]
    by = judged.filter(pl.col("metric") == "auroc").group_by(key, maintain_order=True)
    several = judged.select("model", "dataset").unique().height > 1
    frame = by.agg(
        pl.when(pl.col("value").null_count() == 0).then(pl.col("value").mean()).alias("mean_auroc"),
        *(
            # An interval is that of a cell, not of a mean over several.
            (pl.lit(None, pl.Float64) if several else pl.col(end).first()).alias(f"mean_auroc_{end}")
            for end in ("lo", "hi")
        ),
        pl.col("n").sum().cast(pl.Float64).alias("rows"),
    )
    correct = (
        judged.filter(pl.col("metric") == "accuracy")
        .group_by(key, maintain_order=True)
        .agg(((pl.col("value") * pl.col("n")).sum() / pl.col("n").sum()).alias("correct"))
    )
    return frame.join(correct, on=key, how="left", maintain_order="left").rename({"setting": "judge"})


TABLES: tuple[tuple[StudyTable, Callable[[ReportData], pl.DataFrame]], ...] = (
    (
        StudyTable(
            "bootstrap_ci", "Confidence intervals",
            "AUROC of SGPU with its 95 % interval, and half of its width, as the paper prints it.",
            CELL, (AUROC, Measure("ci_half_width", "±")),
        ),
        _intervals,
    ),
    (
        StudyTable(
            "unsafe", "Unsafe predictions",
            "A prediction is unsafe where one half lies within half a standard deviation of the probability. "
            "AUROC before and after the unsafe ones are taken out.",
            CELL,
            (Measure("unsafe_share", "Unsafe"), Measure("accuracy_unsafe", "Correct among unsafe"),
             Measure("accuracy_kept", "Correct among kept"), Measure("auroc", "AUROC, all"),
             Measure("auroc_kept", "AUROC, kept")),
        ),
        _unsafe,
    ),
    (
        StudyTable(
            "self_consistency", "Beyond self-consistency",
            "Response sets of which more than half of the answers mean the same, judged by SGPU at a "
            "probability of one half. TN: they agree, are wrong, and SGPU doubts them.",
            CELL,
            (Measure("n", "Sets", decimals=0),
             *(Measure(name.lower(), name, decimals=0) for name in ("TP", "FP", "TN", "FN")),
             *(Measure(name.lower(), name) for name in ("Recall", "Precision", "Accuracy"))),
        ),
        lambda data: data.confusion,
    ),
    (
        StudyTable(
            "n_samples", "Number of samples",
            "SGPU on fewer answers of every question, refitted; they are drawn from the stored ones by a "
            "seed of the question.",
            (*CELL, "n_samples"), THREE, marks_within=CELL,
        ),
        _refitted("n_answers", *CELL, "n_samples"),
    ),
    (ANY_SIZE, lambda data: any_size_frame(data.sensitivity)),
    (
        StudyTable(
            "train_size", "Training sizes",
            "SGPU on the first training questions only; each size holds the smaller ones.",
            (*CELL, "method", "n_train"), THREE, marks_within=CELL,  # the paper's table has other methods too
        ),
        _refitted("train_size", *CELL, "method", "n_train"),
    ),
    (
        StudyTable(
            "kernels", "Kernels",
            "AUROC on the validation part of the training questions, mean over the cells; "
            "no test question is seen.",
            ("kernel", "nu"),
            (Measure("inner_val_auroc", "AUROC, validation", True), Measure("cells", "Cells", decimals=0)),
        ),
        _kernels,
    ),
    (
        StudyTable(
            "encoders", "Encoders", "SGPU with other sentence encoders, refitted.",
            (*CELL, "encoder"), THREE, marks_within=CELL,
        ),
        _refitted("encoder", *CELL, "encoder"),
    ),
    (
        StudyTable(
            "transfer_matrix", "Transfer across models",
            "SGPU trained on one model's answers and tested on another's, to the test questions of one data "
            "set.",
            ("dataset", "trained_on", "tested_on"), THREE, marks_within=("dataset", "tested_on"),
        ),
        _transfer_matrix,
    ),
    (
        StudyTable(
            "judges", "Judges",
            "Mean AUROC under each judge's labels, on the test questions that every judge has seen. "
            "Nothing is refitted.",
            ("judge", "method"),
            (Measure("mean_auroc", "Mean AUROC", True), Measure("correct", "Judged correct"),
             Measure("rows", "Rows", decimals=0)),
            marks_within=("judge",),
        ),
        _judges,
    ),
    (
        StudyTable(
            "eigenvalues", "Impact of embeddings",
            "Mean of the two largest eigenvalues over constructed sets of 10 answers of one meaning and 5 of "
            "another, and the largest error of a similarity. Ideal embeddings give 10, 5 and 0.",
            ("embedding",),
            (Measure("lambda_1", "λ₁"), Measure("lambda_2", "λ₂"), Measure("epsilon", "ε", False)),
        ),
        lambda data: data.embeddings,
    ),
    (
        StudyTable(
            "posthoc_time", "Post-hoc time",
            "Seconds for each input that a method adds after sampling, as this run took: its stages and its "
            "own computation. Methods that share a stage each count all of it.",
            ("method", "dataset"), (Measure("seconds_per_input", "Seconds per input", False),),
            marks_within=("dataset",),
        ),
        lambda data: data.posthoc,
    ),
)  # fmt: skip


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
    if table.name == ANY_SIZE.name:
        return TableView(table, any_size_figure(table), in_words(table))
    drawn = DRAWN_FROM <= len(table.ours) <= DRAWN_TO
    return TableView(
        table, table_figure(table) if drawn else None, f"{table.title}, {table.measures[0].title}"
    )
