"""What the report of a transfer study is made of, already computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import polars as pl

IN_DOMAIN, TRAINING_FREE = "in_domain", "training_free"


class SourceRow(TypedDict):
    """A cell of the study and what it has."""

    cell: str
    modality: str
    n_train: int
    n_validation: int
    n_test: int
    label_rate: float | None


class GapRow(TypedDict):
    """A target that a design could not be tried on."""

    design: str
    target: str
    why: str


class FitRow(TypedDict):
    """What one classifier was made from."""

    target: str
    method: str
    sources: str
    chosen: str
    n_train: int
    n_selection: int
    left_out: int


@dataclass(frozen=True)
class TransferData:
    """``metrics``, ``comparisons``, ``curve`` and ``calibration`` hold the columns of `sgpu.transfer.tables`.

    ``designs`` are those asked for, in order.
    """

    study: Mapping[str, Any]
    run_info: Mapping[str, Any]
    designs: Sequence[str]
    sources: Sequence[SourceRow]
    metrics: pl.DataFrame
    comparisons: pl.DataFrame
    curve: pl.DataFrame
    calibration: pl.DataFrame
    fits: Sequence[FitRow] = ()
    gaps: Sequence[GapRow] = ()
    notes: Sequence[str] = ()
