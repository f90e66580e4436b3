"""The paper's numbers under the names of the shipped studies all find the published ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from sgpu.datasets.base import DATASETS
from sgpu.report.aggregate.cells import read_cells
from sgpu.report.aggregate.contents import contents
from sgpu.report.study.data import METRIC_COLUMNS, PREDICTION_COLUMNS, SENSITIVITY_SCHEMA, ReportData
from sgpu.report.study.published import METRICS, in_paper_spelling, read_published_table
from sgpu.report.study.study_tables import KERNELS, study_tables
from sgpu.study.benchmark import load_study
from sgpu.study.models import MODELS

STUDIES = Path(__file__).parents[3] / "pipelines" / "studies"
LABEL = "llm-llama-3.1-8b-instruct--test-{}"  # of a judge for training and one for test questions


def our_names(study: str) -> dict[str, str]:
    """Map what the paper calls data sets, models, methods and judges to the names in a shipped study."""
    loaded = load_study(STUDIES / study)
    models = [MODELS[spec.card_name] for spec in loaded.models]
    cards = [*(DATASETS.get(spec.kind) for spec in loaded.datasets), *models]
    methods = in_paper_spelling(pl.Series("method", loaded.methods))
    judges = {name for spec in loaded.datasets for name in loaded.judge_of(spec.name).models}
    return {
        **{(card.paper_name or card.name).casefold(): card.name for card in cards},
        **dict(zip(methods.str.to_lowercase(), loaded.methods, strict=True)),
        **{MODELS[name].paper_name.casefold(): LABEL.format(name) for name in judges},
    }


def printed(name: str, names: dict[str, str]) -> pl.DataFrame:
    """A table of the paper under the names of a study."""
    frame = read_published_table(name)
    words = [column for column in frame.columns if frame[column].dtype == pl.String]
    return frame.with_columns(
        pl.col(word).map_elements(lambda text: names.get(text.casefold(), text), pl.String) for word in words
    )


def long(frame: pl.DataFrame, **constants: str) -> pl.DataFrame:
    """A row per metric, as in the metrics and sensitivity tables."""
    rows = frame.unpivot(
        METRICS, index=[c for c in frame.columns if c not in METRICS], variable_name="metric"
    )
    return rows.with_columns(pl.lit(value).alias(name) for name, value in constants.items())


@pytest.fixture(scope="module")
def data() -> ReportData:
    """What a report would be made of, had paper.yaml given the paper's numbers."""
    names = our_names("paper.yaml")
    unsafe = (
        printed("unsafe", names)
        .select("dataset", "model", value="auroc_kept")
        .with_columns(method=pl.lit("sgpu"), metric=pl.lit("auroc_kept"))
    )
    metrics = pl.concat([long(printed("summary", names)), unsafe], how="diagonal").join(
        printed("bootstrap_ci", names).select("dataset", "model", "ci_half_width", method=pl.lit("sgpu")),
        on=["dataset", "model", "method"], how="left",
    )  # fmt: skip
    half = pl.col("ci_half_width")
    metrics = metrics.with_columns(
        lo=pl.col("value") - half, hi=pl.col("value") + half, n=pl.lit(100), n_missing=pl.lit(0),
        settings=pl.lit("{}"),
    )  # fmt: skip
    sizes = (
        printed("train_size", names)
        .drop_nulls("n_train")
        .with_columns(setting=pl.col("n_train").replace("full", "10000"))
    )
    kernels = {(title, nu): name for name, (title, nu) in KERNELS.items()}
    kernel = [
        kernels[row["kernel"], str(row["nu"] or "")] for row in read_published_table("kernels").to_dicts()
    ]
    parts = [
        long(printed("n_samples", names), kind="n_answers", method="sgpu").rename({"n_samples": "setting"}),
        long(sizes, kind="train_size"),
        long(printed("encoders", names), kind="encoder", method="sgpu").rename({"encoder": "setting"}),
        long(printed("transfer_matrix", names), kind="trained_on", method="sgpu")
        .rename({"trained_on": "setting", "tested_on": "model"}),
        printed("judges", names).with_columns(kind=pl.lit("judge"), metric=pl.lit("auroc"))
        .rename({"judge": "setting", "mean_auroc": "value"}),
        read_published_table("kernels").with_columns(
            setting=pl.Series(kernel), kind=pl.lit("global_kernel"), metric=pl.lit("auroc"),
            method=pl.lit("global_sgpu"),
        ).rename({"inner_val_auroc": "value"}),
    ]  # fmt: skip
    whole = [
        part.with_columns(pl.lit(None).alias(name) for name in SENSITIVITY_SCHEMA if name not in part.columns)
        .select(SENSITIVITY_SCHEMA.names()).cast(SENSITIVITY_SCHEMA)
        for part in parts
    ]  # fmt: skip
    predictions = pl.DataFrame(schema=dict.fromkeys(PREDICTION_COLUMNS, pl.String))
    made = ReportData({}, {}, metrics.select(METRIC_COLUMNS), predictions, sensitivity=pl.concat(whole))
    confusion = printed("self_consistency", names).with_columns(
        pl.lit(0.0).alias(name) for name in ("tp", "fp", "fn", "precision")
    )
    times = printed("posthoc_time", names)
    return replace(made, confusion=confusion, embeddings=read_published_table("eigenvalues"), posthoc=times)


@pytest.mark.parametrize(
    "name",
    ["bootstrap_ci", "unsafe", "self_consistency", "n_samples", "train_size", "kernels", "encoders",
     "transfer_matrix", "judges", "eigenvalues", "posthoc_time"],
)  # fmt: skip
def test_every_row_of_a_small_table_finds_ours(data: ReportData, name: str) -> None:
    (made,) = (each for each in study_tables(data) if each.name == name)
    beside = [
        row
        for row in made.rows
        if any(score.value is not None and score.published is not None for score in row.scores)
    ]
    assert len(beside) == len(read_published_table(name)) and made.paper is None


def test_every_value_of_the_large_tables_finds_ours(data: ReportData, tmp_path: Path) -> None:
    cells, transfer = tmp_path / "metrics.csv", tmp_path / "text.csv"
    data.metrics.write_csv(cells)
    printed("transfer_text", our_names("paper_text.yaml")).write_csv(transfer)
    report = contents(read_cells(cells), read_cells(transfer))
    beside = report.files["comparison"].drop_nulls("difference").group_by("table").len()
    counts = dict(beside.iter_rows())
    assert (counts["summary"], counts["model_mean"], counts["overall_mean"]) == (792, 132, 33)
    assert (counts["transfer_text"], counts["transfer_text_mean"]) == (72, 12)
    assert len(report.files["inconsistencies"]) == len(read_published_table("inconsistencies")) == 18
