"""Which published aggregates follow from the cells, and which do not.

A mean of values rounded to three decimals, itself rounded, follows if it is within 0.001 of the recomputed
one: half of that from the values, half from the mean. A value printed in two tables must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from sgpu.report.aggregate.cells import KEY, Cells, means
from sgpu.report.study import published
from sgpu.report.study.published import METRICS

MEAN_BOUND = 0.001
COPY_BOUND = 0.0
_LAST_DIGIT = 0.001
_NOISE = 1e-9  # of binary fractions; the values have three decimals
_ENCODER = "all-MiniLM-L6-v2"
_JUDGE = "Llama-3.1-70B"  # of the main results
_N_SAMPLES = 20

# (cell name, metric) -> value; None where it cannot be recomputed from the same cells.
Values = Mapping[tuple[str, str], float | None]


@dataclass(frozen=True)
class Inconsistency:
    """A published value that does not follow."""

    check: str
    cell: str
    metric: str
    published: float
    recomputed: float


@dataclass(frozen=True)
class PublishedCheck:
    """One published table against another: values compared, values that could not be, and findings."""

    name: str
    compared: int
    not_comparable: int
    findings: tuple[Inconsistency, ...]


def paper_as_cells() -> Cells:
    """The paper's own complete results."""
    no_tests = [pl.lit(None, pl.Float64).alias(f"{metric}_p") for metric in METRICS]
    return Cells("the paper", published.read_published_table("summary").with_columns(no_tests))


def check_published(cells: Cells) -> list[PublishedCheck]:
    """Every published value that can be recomputed, from ``cells`` or from another published table."""
    table = published.read_published_table
    diagonal = table("transfer_matrix").filter(pl.col("trained_on") == pl.col("tested_on"))
    sizes = table("train_size").filter(pl.col("n_train").is_null() | (pl.col("n_train") == "full"))
    text = table("transfer_text").filter(pl.col("model") != "mean")
    sgpu = values(cells.frame.filter(method="SGPU"), "dataset", "model")
    overall = values(table("overall_mean"), "method")
    our_overall = values(means(cells), "method") if has_the_papers_pairs(cells) else {}
    same_model = pl.col("model").is_in(models_of_the_paper(cells))
    our_by_model = values(means(cells, "model").filter(same_model), "model", "method")
    by_model = values(table("model_mean"), "model", "method")
    encoder = values(table("encoders").filter(encoder=_ENCODER), "dataset", "model")
    samples = values(table("n_samples").filter(n_samples=_N_SAMPLES), "dataset", "model")
    judged = values(table("judges").filter(judge=_JUDGE).rename({"mean_auroc": "auroc"}), "method")
    by_dataset = values(table("transfer_text").filter(model="mean"), "dataset", "method")
    transfer = values(table("transfer_text_mean"), "method")
    return [
        compare("model_mean vs summary", by_model, our_by_model, MEAN_BOUND),
        compare("overall_mean vs summary", overall, our_overall, MEAN_BOUND),
        compare("overall_mean vs model_mean", overall, _averaged(table("model_mean"), "method"), MEAN_BOUND),
        compare("bootstrap_ci vs summary", values(table("bootstrap_ci"), "dataset", "model"), sgpu),
        compare("transfer_matrix diag vs summary", values(diagonal, "dataset", "tested_on"), sgpu),
        compare("encoders MiniLM-L6 vs summary", encoder, sgpu),
        compare("n_samples 20 vs summary", samples, sgpu),
        compare("train_size vs summary", values(sizes, *KEY), values(cells.frame, *KEY)),
        compare("judges vs overall_mean", judged, overall),
        compare("transfer_text means vs cells", by_dataset, _averaged(text, "dataset", "method"), MEAN_BOUND),
        compare("transfer main-text mean vs 4 cells", transfer, _averaged(text, "method"), MEAN_BOUND),
    ]


def compare(name: str, printed: Values, recomputed: Values, bound: float = COPY_BOUND) -> PublishedCheck:
    """Findings where ``printed`` is further than ``bound`` from ``recomputed``.

    A copy that is never off by more than its last digit says so in its name.
    """
    pairs = [(*key, value, recomputed.get(key)) for key, value in printed.items() if value is not None]
    comparable = [(cell, metric, a, b) for cell, metric, a, b in pairs if b is not None]
    off = [row for row in comparable if abs(row[2] - row[3]) > bound + _NOISE]
    slight = bound == COPY_BOUND and all(abs(a - b) <= _LAST_DIGIT + _NOISE for _, _, a, b in off)
    if off and slight:
        name += " (last digit only)"
    findings = tuple(Inconsistency(name, *row) for row in off)
    return PublishedCheck(name, len(comparable), len(pairs) - len(comparable), findings)


def findings_frame(checks: list[PublishedCheck]) -> pl.DataFrame:
    """The findings as in ``published/inconsistencies.csv``: text, rounded as there."""
    rows = [
        (
            *(row.check, row.cell, row.metric, f"{row.published:.3f}", f"{row.recomputed:.4f}"),
            f"{row.published - row.recomputed:+.4f}",
        )
        for check in checks
        for row in check.findings
    ]
    columns = ("check", "cell", "metric", "published", "recomputed", "published_minus_recomputed")
    return pl.DataFrame(rows, dict.fromkeys(columns, pl.String), orient="row")


def values(frame: pl.DataFrame, *keys: str) -> dict[tuple[str, str], float]:
    """(keys joined by ``|``, metric) -> value of the METRICS that it has, without those that are missing."""
    return {
        ("|".join(str(row[key]) for key in keys), metric): row[metric]
        for row in frame.iter_rows(named=True)
        for metric in METRICS
        if row.get(metric) is not None
    }


def has_the_papers_pairs(cells: Cells) -> bool:
    """Whether ``cells`` has exactly the paper's pairs of data set and model."""
    return cells.pairs() == paper_as_cells().pairs()


def models_of_the_paper(cells: Cells) -> list[str]:
    """The models that have exactly the paper's data sets."""
    paper, ours = paper_as_cells().pairs(), cells.pairs()
    return [
        model
        for model in cells.names("model")
        if {d for d, m in paper if m == model} == {d for d, m in ours if m == model}
    ]


def _averaged(frame: pl.DataFrame, *keys: str) -> dict[tuple[str, str], float]:
    return values(frame.group_by(keys, maintain_order=True).agg(pl.col(METRICS).mean()), *keys)
