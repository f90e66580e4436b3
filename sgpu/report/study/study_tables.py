"""Which small tables a study can fill: those of the paper's sensitivity studies and appendices."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from sgpu.report.look.svg import Picture
from sgpu.report.study import published
from sgpu.report.study.data import ReportData
from sgpu.report.study.figures import CLASSIFIERS, any_size_figure, any_size_in_words, table_figure
from sgpu.report.study.published import (
    METRICS,
    are_of_the_paper,
    in_paper_spelling,
    judge_in_paper_spelling,
)
from sgpu.report.study.study_table import study_table, wide
from sgpu.report.table import ReportTable

CELL = ("dataset", "model")
CELLS = pl.Schema({"model": pl.String, "dataset": pl.String})
KERNELS = {
    "rbf": ("RBF", ""),
    "matern05": ("Matern", "0.5"),
    "matern15": ("Matern", "1.5"),
    "matern25": ("Matern", "2.5"),
}
SGPU, GLOBAL = "sgpu", "global_sgpu"
ANSWERS, ANY_SIZE, CELL_KERNELS = "answers", "any_size", "cell_kernels"
UNPUBLISHED = {ANSWERS, ANY_SIZE, CELL_KERNELS}  # tables that the paper does not have


def study_tables(data: ReportData) -> list[ReportTable]:
    """Return the tables that have a row of the study's own, in the order of the paper.

    The paper's numbers stand beside them if the study has a cell of the paper.
    """
    cells = _named(pl.DataFrame(data.cells(), CELLS, orient="row")).select(CELL)
    unpublished = UNPUBLISHED if are_of_the_paper(cells.iter_rows()) else FRAMES
    tables = [
        study_table(name, _named(frame(data)), beside_paper=name not in unpublished)
        for name, frame in FRAMES.items()
    ]
    return [table for table in tables if table.rows]


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


def _answers(data: ReportData) -> pl.DataFrame:
    names = ["accuracy_answer", "accuracy_first_answer", "auroc_answer", "log_loss_answer", "ece_answer"]
    return wide(data.metrics.filter(pl.col("metric").is_in(names)), CELL, names)


def _refitted(kind: str, *keys: str) -> Callable[[ReportData], pl.DataFrame]:
    """SGPU under each value of one setting, which is called as the last of ``keys``."""

    def frame(data: ReportData) -> pl.DataFrame:
        own = data.sensitivity.filter(kind=kind, method=SGPU)
        return wide(own.rename({"setting": keys[-1]}), keys, METRICS)

    return frame


def _train_sizes(data: ReportData) -> pl.DataFrame:
    """SGPU at each training size; in the paper's cell also the methods that it prints beside it."""
    keys = (*CELL, "method", "n_train")
    sizes = _named(_refitted("train_size", *keys)(data))
    printed = published.read_published_table("train_size").filter(pl.col("n_train").is_null())
    of_the_paper = sizes.join(printed, on=CELL, how="semi")
    if of_the_paper.is_empty():
        return sizes
    size = pl.col("n_train").cast(pl.Int64)
    whole = pl.when(size == size.max()).then(pl.lit("full")).otherwise("n_train").alias("n_train")
    others = _named(data.metrics).with_columns(n_train=pl.lit(""))
    others = others.join(printed, on=[*CELL, "method"], how="semi")
    rest = sizes.join(printed, on=CELL, how="anti")
    return pl.concat([of_the_paper.with_columns(whole), rest, wide(others, keys, METRICS)], how="diagonal")


def _kernels(data: ReportData, kind: str, method: str) -> pl.DataFrame:
    """Mean over the cells of each kernel's AUROC on validation questions; the pool of all is one cell."""
    names = [
        pl.col("setting").replace_strict({k: v[i] for k, v in KERNELS.items()}, default=None).alias(name)
        for i, name in enumerate(("kernel", "nu"))
    ]
    return (
        data.sensitivity.filter(kind=kind, method=method, metric="auroc")
        .group_by("setting", maintain_order=True)
        .agg(
            pl.col("value").mean().alias("inner_val_auroc"),
            pl.len().cast(pl.Float64).alias("cells"),
            pl.col("n").sum().cast(pl.Float64).alias("rows"),
        )
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
    frame = frame.join(correct, on=key, how="left", maintain_order="left").rename({"setting": "judge"})
    paper_name = pl.col("judge").map_elements(judge_in_paper_spelling, return_dtype=pl.String)
    return frame.with_columns(paper_name)


def any_size_frame(sensitivity: pl.DataFrame) -> pl.DataFrame:
    """Means over the cells that have both, and of the ends of their intervals.

    The standard deviation of a mean is at most the mean of the standard deviations, whatever the cells have
    in common, so that such an interval is not too narrow. Cells often share questions.
    """
    keys = ["setting", "method"]
    rows = sensitivity.filter(
        (pl.col("kind") == "n_answers") & pl.col("method").is_in(list(CLASSIFIERS)),
        pl.col("method").n_unique().over("dataset", "model", "setting", "metric") == len(CLASSIFIERS),
    )
    means = rows.group_by(*keys, "metric", maintain_order=True).agg(
        pl.col("value").cast(pl.Float64).mean(),
        *(
            pl.when(pl.col(end).null_count() == 0).then(pl.col(end).cast(pl.Float64).mean()).alias(end)
            for end in ("lo", "hi")
        ),
        pl.len().cast(pl.Float64).alias("cells"),
    )
    cells = means.filter(metric="auroc").select(*keys, "cells")
    frame = wide(means, keys, ["auroc"]).join(cells, on=keys, how="left")
    frame = frame.join(wide(means, keys, ["ece"]), on=keys, how="left")
    name = pl.col("method").replace_strict(CLASSIFIERS, default=None, return_dtype=pl.String)
    return frame.rename({"setting": "n_samples"}).with_columns(name.alias("classifier")).drop("method")


# What fills each of the tables in tables.yaml, in the order of the paper.
FRAMES: Mapping[str, Callable[[ReportData], pl.DataFrame]] = {
    "bootstrap_ci": _intervals,
    "unsafe": _unsafe,
    ANSWERS: _answers,
    "self_consistency": lambda data: data.confusion,
    "n_samples": _refitted("n_answers", *CELL, "n_samples"),
    ANY_SIZE: lambda data: any_size_frame(data.sensitivity),
    "train_size": _train_sizes,
    "kernels": lambda data: _kernels(data, "global_kernel", GLOBAL).drop("cells"),
    CELL_KERNELS: lambda data: _kernels(data, "kernel", SGPU).drop("rows"),
    "encoders": _refitted("encoder", *CELL, "encoder"),
    "transfer_matrix": _transfer_matrix,
    "judges": _judges,
    "nli_vs_cosine": lambda data: data.sentence_pairs,
    "eigenvalues": lambda data: data.embeddings,
    "posthoc_time": lambda data: data.posthoc,
}


DRAWN_FROM, DRAWN_TO = 2, 16  # rows


def table_views(data: ReportData) -> list[tuple[ReportTable, Picture]]:
    """The study's tables, with a figure of each that has several rows but not too many to be told apart."""
    return [(table, _picture(table)) for table in study_tables(data)]


def _picture(table: ReportTable) -> Picture:
    name = f"table-{table.name}"
    if table.name == ANY_SIZE:
        return Picture(any_size_figure(table), name, any_size_in_words(table))
    drawn = DRAWN_FROM <= len(table.rows) <= DRAWN_TO
    spoken = f"{table.title}, {table.measures[0].title}"
    return Picture(table_figure(table) if drawn else None, name, spoken)
