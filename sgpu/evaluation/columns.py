"""The rows of a cell that are measured, and what a method says of each; what is missing stays missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgpu.errors import DataError
from sgpu.evaluation.inputs import Bools, Floats, checked_labels, checked_probabilities
from sgpu.evaluation.mapping import UndefinedMap, fit_mapping

NO_ROWS = "no test row has both a label and a value of this method"


@dataclass(frozen=True)
class CellRows:
    """The labels of a cell's Q rows and the labelled rows of its two splits, (Q,) each."""

    label: Floats
    test: Bools
    validation: Bools
    n_test: int  # test rows, with a label or without

    @classmethod
    def of(cls, label: ArrayLike, split: ArrayLike) -> CellRows:
        """Read ``label`` (1, 0 or NaN/None) and ``split``, (Q,) each; raises DataError for other labels."""
        labels, splits = np.asarray(label, dtype=np.float64), np.asarray(split, dtype=np.str_)
        known = ~np.isnan(labels)
        checked_labels(labels[known])
        _check_length("split", splits, len(labels))
        test = splits == "test"
        return cls(labels, test & known, (splits == "validation") & known, int(test.sum()))

    @property
    def tested_label(self) -> Floats:
        """(T,) labels of the labelled test rows."""
        return self.label[self.test]

    def column(self, name: str, values: ArrayLike) -> Floats:
        """(Q,) ``values`` as float64; raises DataError for another length."""
        column = np.asarray(values, dtype=np.float64)
        _check_length(name, column, len(self.label))
        return column


@dataclass(frozen=True)
class Forecast:
    """Probabilities of the T labelled test rows, NaN where not ``present``, and how they were got."""

    probability: Floats
    present: Bools
    settings: dict[str, object] = field(default_factory=dict)
    undefined: str = ""  # why there is none


def given_forecast(method: str, probability: ArrayLike, rows: CellRows) -> Forecast:
    """The method's own ``probability`` (Q,); raises DataError outside [0, 1]."""
    p = rows.column(f"probability of {method!r}", probability)[rows.test]
    there = ~np.isnan(p)
    checked_probabilities(p[there], int(there.sum()))
    return Forecast(p, there)


def mapped_forecast(mapping: str, confidence: Floats, rows: CellRows) -> Forecast:
    """``confidence`` (Q,) turned into probabilities by a map fitted on the validation rows.

    Where they do not determine the map, nothing is present and ``undefined`` says why.
    """
    fit_on = rows.validation & ~np.isnan(confidence)
    recorded: dict[str, object] = {"mapping": mapping, "n_validation": int(fit_on.sum())}
    tested = confidence[rows.test]
    try:
        p = fit_mapping(mapping, confidence[fit_on], rows.label[fit_on])(tested)
    except UndefinedMap as error:
        nothing = np.full(len(tested), np.nan)
        return Forecast(nothing, np.isfinite(nothing), recorded, str(error))
    return Forecast(p, ~np.isnan(p), recorded)


def _check_length(name: str, values: NDArray[Any], n: int) -> None:
    if values.shape != (n,):
        raise DataError(
            f"{name} has shape {values.shape}, but the cell has {n} labels. Align the rows first."
        )
