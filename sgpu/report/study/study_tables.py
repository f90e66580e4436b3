"""Which small tables a study can fill: those of the paper's sensitivity studies and appendices."""

from __future__ import annotations

import polars as pl

from sgpu.report.study.any_size import any_size_table
from sgpu.report.study.data import ReportData
from sgpu.report.study.published import in_paper_spelling
from sgpu.report.study.study_table import Measure, StudyTable, beside_published

AUROC, AUARC, ECE = (
    Measure("auroc", "AUROC", True),
    Measure("auarc", "AUARC", True),
    Measure("ece", "ECE", False),
)
THREE = (AUROC, AUARC, ECE)
METRICS = [measure.name for measure in THREE]
KERNELS = {
    "rbf": ("RBF", ""),
    "matern05": ("Matern", "0.5"),
    "matern15": ("Matern", "1.5"),
    "matern25": ("Matern", "2.5"),
}
SGPU = "sgpu"


def study_tables(data: ReportData) -> list[StudyTable]:
    """The tables that have a row of the study's own, in the order of the paper."""
    tables = [
        _intervals(data),
        _unsafe(data),
        _self_consistency(data),
        _n_samples(data),
        any_size_table(data.sensitivity),
        _train_size(data),
        _kernels(data),
        _encoders(data),
        _transfer_matrix(data),
        _judges(data),
        _eigenvalues(data),
        _posthoc_time(data),
    ]
    return [table for table in tables if table.ours]


def _wide(frame: pl.DataFrame, keys: list[str], metrics: list[str]) -> pl.DataFrame:
    """One row for each ``keys``, in order of appearance, with value, ``_lo`` and ``_hi`` of every metric."""
    wide = frame.select(keys).unique(maintain_order=True)
    for metric in metrics:
        own = frame.filter(pl.col("metric") == metric).select(
            *keys,
            pl.col("value").cast(pl.Float64).alias(metric),
            pl.col("lo").cast(pl.Float64).alias(f"{metric}_lo"),
            pl.col("hi").cast(pl.Float64).alias(f"{metric}_hi"),
        )
        wide = wide.join(own, on=keys, how="left", maintain_order="left")
    return wide


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Data sets, models and methods as the paper spells them."""
    names = [name for name in ("dataset", "model", "method") if name in frame.columns and frame.height]
    return frame.with_columns(in_paper_spelling(frame[name]).alias(name) for name in names)


def _varied(data: ReportData, kind: str) -> pl.DataFrame:
    return data.sensitivity.filter(pl.col("kind") == kind)


def _intervals(data: ReportData) -> StudyTable:
    rows = data.metrics.filter((pl.col("method") == SGPU) & (pl.col("metric") == "auroc"))
    frame = _named(_wide(rows, ["dataset", "model"], ["auroc"])).with_columns(
        ((pl.col("auroc_hi") - pl.col("auroc_lo")) / 2).alias("ci_half_width")
    )
    caption = "AUROC of SGPU with its 95 % interval, and half of its width, as the paper prints it."
    measures = (AUROC, Measure("ci_half_width", "±"))
    return beside_published(
        StudyTable("bootstrap_ci", "Confidence intervals", caption, ("dataset", "model"), measures, frame)
    )


def _unsafe(data: ReportData) -> StudyTable:
    names = ["unsafe_share", "accuracy_unsafe", "accuracy_kept", "auroc", "auroc_kept"]
    rows = data.metrics.filter(pl.col("method") == SGPU)
    frame = _named(_wide(rows, ["dataset", "model"], names))
    caption = (
        "A prediction is unsafe where one half lies within half a standard deviation of the probability. "
        "AUROC before and after the unsafe ones are taken out."
    )
    measures = (
        Measure("unsafe_share", "Unsafe"),
        Measure("accuracy_unsafe", "Correct among unsafe"),
        Measure("accuracy_kept", "Correct among kept"),
        Measure("auroc", "AUROC, all"),
        Measure("auroc_kept", "AUROC, kept"),
    )
    return StudyTable("unsafe", "Unsafe predictions", caption, ("dataset", "model"), measures, frame)


def _self_consistency(data: ReportData) -> StudyTable:
    caption = (
        "Response sets of which more than half of the answers mean the same, judged by SGPU at a probability "
        "of one half. TN: they agree, are wrong, and SGPU doubts them."
    )
    measures = (
        Measure("n", "Sets", decimals=0),
        Measure("tp", "TP", decimals=0),
        Measure("fp", "FP", decimals=0),
        Measure("tn", "TN", decimals=0),
        Measure("fn", "FN", decimals=0),
        Measure("recall", "Recall"),
        Measure("precision", "Precision"),
        Measure("accuracy", "Accuracy"),
    )
    return beside_published(
        StudyTable(
            "self_consistency",
            "Beyond self-consistency",
            caption,
            ("dataset", "model"),
            measures,
            _named(data.confusion),
        )
    )


def _n_samples(data: ReportData) -> StudyTable:
    caption = (
        "SGPU on fewer answers of every question, refitted; they are drawn from the stored ones by a seed of "
        "the question."
    )
    return _refitted(data, "n_answers", "n_samples", "Number of samples", caption, "n_samples")


def _train_size(data: ReportData) -> StudyTable:
    caption = "SGPU on the first training questions only; each size holds the smaller ones."
    return _refitted(data, "train_size", "train_size", "Training sizes", caption, "n_train", by_method=True)


def _encoders(data: ReportData) -> StudyTable:
    caption = "SGPU with other sentence encoders, refitted."
    return _refitted(data, "encoder", "encoders", "Encoders", caption, "encoder")


def _refitted(
    data: ReportData, kind: str, name: str, title: str, caption: str, setting: str, *, by_method: bool = False
) -> StudyTable:
    """SGPU under each value of one ``setting``; ``by_method`` where the paper's table names other methods."""
    rows = _varied(data, kind).filter(pl.col("method") == SGPU).rename({"setting": setting})
    keys = ("dataset", "model", *(["method"] if by_method else []), setting)
    frame = _named(_wide(rows, list(keys), METRICS))
    return beside_published(StudyTable(name, title, caption, keys, THREE, frame, ("dataset", "model")))


def _kernels(data: ReportData) -> StudyTable:
    rows = _varied(data, "kernel").filter((pl.col("method") == SGPU) & (pl.col("metric") == "auroc"))
    frame = (
        rows.group_by("setting", maintain_order=True)
        .agg(pl.col("value").mean().alias("inner_val_auroc"), pl.len().cast(pl.Float64).alias("cells"))
        .with_columns(
            pl.col("setting")
            .replace_strict({k: v[0] for k, v in KERNELS.items()}, default=None)
            .alias("kernel"),
            pl.col("setting").replace_strict({k: v[1] for k, v in KERNELS.items()}, default=None).alias("nu"),
        )
        .drop("setting")
    )
    caption = (
        "AUROC on the validation part of the training questions, mean over the cells; "
        "no test question is seen."
    )
    measures = (Measure("inner_val_auroc", "AUROC, validation", True), Measure("cells", "Cells", decimals=0))
    return beside_published(StudyTable("kernels", "Kernels", caption, ("kernel", "nu"), measures, frame))


def _transfer_matrix(data: ReportData) -> StudyTable:
    rows = _varied(data, "trained_on").rename({"setting": "trained_on", "model": "tested_on"})
    frame = _wide(rows, ["dataset", "trained_on", "tested_on"], METRICS)
    # Two columns of models: each in the paper's spelling.
    for column in ("trained_on", "tested_on"):
        if frame.height:
            spelled = in_paper_spelling(frame[column].alias("model")).alias(column)
            frame = frame.with_columns(spelled)
    caption = (
        "SGPU trained on one model's answers and tested on another's, to the test questions of one data set."
    )
    keys = ("dataset", "trained_on", "tested_on")
    table = StudyTable(
        "transfer_matrix",
        "Transfer across models",
        caption,
        keys,
        THREE,
        _named(frame),
        ("dataset", "tested_on"),
    )
    return beside_published(table)


def _judges(data: ReportData) -> StudyTable:
    """Means over the cells; a method that is undefined in one of them has none."""
    judged = _varied(data, "judge")
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
    caption = (
        "Mean AUROC under each judge's labels, on the test questions that every judge has seen. "
        "Nothing is refitted."
    )
    measures = (
        Measure("mean_auroc", "Mean AUROC", True),
        Measure("correct", "Judged correct"),
        Measure("rows", "Rows", decimals=0),
    )
    return beside_published(
        StudyTable("judges", "Judges", caption, ("judge", "method"), measures, _named(frame), ("judge",))
    )


def _eigenvalues(data: ReportData) -> StudyTable:
    caption = (
        "Mean of the two largest eigenvalues over constructed sets of 10 answers of one meaning and 5 of "
        "another, and the largest error of a similarity. Ideal embeddings give 10, 5 and 0."
    )
    measures = (Measure("lambda_1", "λ₁"), Measure("lambda_2", "λ₂"), Measure("epsilon", "ε", False))
    return beside_published(
        StudyTable("eigenvalues", "Impact of embeddings", caption, ("embedding",), measures, data.embeddings)
    )


def _posthoc_time(data: ReportData) -> StudyTable:
    caption = (
        "Seconds for each input that a method adds after sampling, as this run took: its stages and its own "
        "computation. Methods that share a stage each count all of it."
    )
    measures = (Measure("seconds_per_input", "Seconds per input", False),)
    frame = _named(data.posthoc)
    return beside_published(
        StudyTable(
            "posthoc_time", "Post-hoc time", caption, ("method", "dataset"), measures, frame, ("dataset",)
        )
    )
