"""The paper's own tables, shipped with the package, and the names that it uses."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import polars as pl

from sgpu.datasets.base import DATASETS
from sgpu.errors import MissingDependencyError
from sgpu.methods.base import METHODS, Method, TrainedMethod
from sgpu.study.models import MODELS

METRICS = ("auroc", "auarc_20", "ece")
FAMILIES = ("training-free", "trained")
_FOLDER = Path(__file__).parent.parent / "published"

# Registered name -> the paper's. Methods that the paper does not report keep their own name.
_PAPER_METHODS = {
    "semantic_entropy": "SE",
    "predictive_entropy": "PE",
    "discrete_semantic_entropy": "DSE",
    "kernel_language_entropy": "KLE",
    "umpire": "UMPIRE",
    "cov_eigenscore": "Cov Eigenscore",
    "cos_eigenscore": "Cos Eigenscore",
    "saplma": "SAPLMA",
    "sep": "SEP",
    "global_sgpu": "Global-SGPU",
    "sgpu": "SGPU",
}


@cache
def read_published_table(name: str) -> pl.DataFrame:
    """Return a published table by file name without ``.csv``, numbers as Float64 and names as text."""
    return pl.read_csv(_FOLDER / f"{name}.csv")


@cache
def _spellings() -> dict[str, dict[str, str]]:
    """Map column -> lower-case name -> the paper's spelling, which cards know where it is another name."""
    sources = [read_published_table("summary"), read_published_table("transfer_text")]
    spellings = {
        column: {name.casefold(): name for source in sources for name in source[column]}
        for column in ("dataset", "model", "method")
    }
    datasets = [DATASETS.get(name) for name in DATASETS if not DATASETS.entry(name).is_plugin]
    for column, cards in (("dataset", datasets), ("model", MODELS.values())):
        spellings[column] |= {card.name: card.paper_name for card in cards if card.paper_name}
    spellings["method"] |= _PAPER_METHODS
    return spellings


def in_paper_spelling(names: pl.Series) -> pl.Series:
    """Return the names of a column (dataset, model or method) as the paper spells them; others unchanged."""
    spelling = _spellings()[names.name]
    return names.map_elements(lambda name: spelling.get(name.casefold(), name), return_dtype=pl.String)


def judge_in_paper_spelling(label: str) -> str:
    """Return the paper's name of the judge of the test questions, given the label of a study's judge."""
    model = label.rpartition("--test-")[2].removeprefix("llm-")
    return _spellings()["model"].get(model.casefold(), label)


def are_of_the_paper(pairs: Iterable[tuple[str, str]]) -> bool:
    """Return whether the paper has any of these cells, (data set, model) in its spelling."""
    tables = [read_published_table("summary"), read_published_table("transfer_text")]
    pairs_of = [source.filter(pl.col("model") != "mean").select("dataset", "model") for source in tables]
    printed = {pair for source in pairs_of for pair in source.iter_rows()}
    return not printed.isdisjoint(pairs)


def family(method: str) -> str | None:
    """One of FAMILIES, or None for a method that neither the paper nor the registry knows."""
    printed = read_published_table("overall_mean").filter(pl.col("method") == method)["family"]
    if len(printed):
        return str(printed[0])
    entry = registered(method)
    return None if entry is None else "training-free" if isinstance(entry, Method) else "trained"


def registered(method: str) -> Method | TrainedMethod | None:
    """The method of this name; None where there is none, or it cannot be run where the report is read."""
    try:
        return METHODS.get(method) if method in METHODS else None
    except MissingDependencyError:
        return None


def paper_order(column: str) -> list[str]:
    """The names of a column of the complete results, in the order of print."""
    return read_published_table("summary")[column].unique(maintain_order=True).to_list()
