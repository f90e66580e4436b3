"""The table of one classifier for any number of answers beside those fitted to each number."""

from __future__ import annotations

import polars as pl

from sgpu.report.study_table import Measure, StudyTable

CLASSIFIERS = {"sgpu": "fitted to this number", "sgpu_any_size": "one for any number"}
MEASURES = (
    Measure("auroc", "AUROC", True),
    Measure("ece", "ECE", False),
    Measure("cells", "Cells", decimals=0),
)


def any_size_table(sensitivity: pl.DataFrame) -> StudyTable:
    """Means over the cells that have both. An interval is that of a cell: it stands where there is one."""
    keys = ["setting", "method"]
    rows = sensitivity.filter(
        (pl.col("kind") == "n_answers") & pl.col("method").is_in(list(CLASSIFIERS)),
        pl.col("method").n_unique().over("dataset", "model", "setting", "metric") == len(CLASSIFIERS),
    )
    found = rows.filter(pl.col("metric").is_in(["auroc", "ece"])).group_by(
        *keys, "metric", maintain_order=True
    )
    means = found.agg(
        pl.col("value").cast(pl.Float64).mean().alias(""),
        *(
            pl.when(pl.len() == 1).then(pl.col(end).cast(pl.Float64).first()).alias(f"_{end}")
            for end in ("lo", "hi")
        ),
        pl.len().cast(pl.Float64).alias("cells"),
    )
    frame = rows.select(keys).unique(maintain_order=True)
    for metric in ("auroc", "ece"):
        own = means.filter(pl.col("metric") == metric).drop("metric")
        named = own.rename({end: f"{metric}{end}" for end in ("", "_lo", "_hi")})
        frame = frame.join(named if metric == "auroc" else named.drop("cells"), on=keys, how="left")
    frame = frame.rename({"setting": "n_samples"}).with_columns(
        pl.col("method").replace_strict(CLASSIFIERS, default=None, return_dtype=pl.String).alias("classifier")
    )
    caption = (
        "SGPU fitted to each number of answers, and one classifier of the shares of the eigenvalues and the "
        "number, trained on several numbers at once. It answers for every number that has no fit."
    )
    return StudyTable(
        "any_size", "Any number of answers", caption, ("n_samples", "classifier"), MEASURES,
        frame.drop("method"), ("n_samples",),
    )  # fmt: skip
