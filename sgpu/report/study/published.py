"""The paper's own tables, shipped with the package, and the names that it uses."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl

from sgpu.errors import MissingDependencyError
from sgpu.methods.base import METHODS, Method, TrainedMethod

METRICS = ("auroc", "auarc", "ece")
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
def table(name: str) -> pl.DataFrame:
    """One published table by file name without ``.csv``, numbers as Float64 and names as text."""
    return pl.read_csv(_FOLDER / f"{name}.csv")


@cache
def _spellings() -> dict[str, dict[str, str]]:
    """Column -> lower-case name -> the paper's spelling."""
    sources = [table("summary"), table("transfer_text")]
    spellings = {
        column: {name.casefold(): name for source in sources for name in source[column]}
        for column in ("dataset", "model", "method")
    }
    spellings["method"] |= _PAPER_METHODS
    return spellings


def in_paper_spelling(names: pl.Series) -> pl.Series:
    """The names of a column (dataset, model or method) as the paper spells them; others unchanged."""
    spelling = _spellings()[names.name]
    return names.map_elements(lambda name: spelling.get(name.casefold(), name), return_dtype=pl.String)


def family(method: str) -> str | None:
    """One of FAMILIES, or None for a method that neither the paper nor the registry knows."""
    printed = table("overall_mean").filter(pl.col("method") == method)["family"]
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
    return table("summary")[column].unique(maintain_order=True).to_list()
