"""What a trained method must do with a file of training rows, and how the classifier does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sgpu.errors import DataError
from sgpu.gp.classifier import GPClassifier
from sgpu.gp.fitting import RECIPE, TrainingRows
from sgpu.gp.persistence import DESCRIPTION, FORMAT, Fitted
from sgpu.storage.parquet_files import read_arrow, write_arrow
from sgpu.storage.whole import draft_of_file


@dataclass(frozen=True)
class Trainer:
    """Fits one method.

    ``fit`` takes a file of training rows, settings and a seed; it raises SgpuError where these rows cannot
    be fitted. ``description`` is the file that a saved fit writes last. ``recipe`` names the code and the
    format: another recipe is another fit of the same rows.
    """

    fit: Callable[[Path, Mapping[str, Any], int], Fitted]
    description: str
    recipe: tuple[str | int, ...]


COLUMNS = ("eigenvalues", "label", "weight", "cell")


def write_training_rows(
    path: Path,
    spectra: NDArray[np.float64],
    label: NDArray[np.int64],
    weights: NDArray[np.float64] | None = None,
    cells: NDArray[np.int64] | None = None,
) -> None:
    """Write training rows, spectra (M, N) and label (M,), as an Arrow file for a FitTask.

    Pooled rows have ``cells`` (M,), and ``weights`` (M,) where they do not count alike. Readers see the whole
    file or none.
    """
    values = pa.FixedSizeListArray.from_arrays(pa.array(spectra.ravel(), pa.float64()), spectra.shape[1])
    table = pa.table({"eigenvalues": values, "label": pa.array(label, pa.int64())})
    if weights is not None:
        table = table.append_column("weight", pa.array(weights, pa.float64()))
    if cells is not None:
        table = table.append_column("cell", pa.array(cells, pa.int64()))
    with draft_of_file(path) as draft:
        write_arrow(str(draft), table.to_batches(), table.schema)


def read_pool(path: Path) -> TrainingRows:
    """All columns of a file of `write_training_rows`; DataError if it is none."""
    try:
        table = read_arrow(path, COLUMNS)
        values = table["eigenvalues"].combine_chunks()
        spectra = values.flatten().to_numpy().reshape(len(values), values.type.list_size)
        # A copy: what Arrow hands out cannot be written to, and torch warns of that.
        given = {
            name: table[name].to_numpy().copy() for name in ("weight", "cell") if name in table.column_names
        }
        return TrainingRows(spectra, table["label"].to_numpy(), given.get("weight"), given.get("cell"))
    except (OSError, KeyError, pa.ArrowException, AttributeError, ValueError) as error:
        raise DataError(
            f"{path} is not a file of training rows: {error}. Remove it and run again."
        ) from error


def _fit(rows: Path, settings: Mapping[str, Any], seed: int) -> GPClassifier:
    pool = read_pool(rows)
    return GPClassifier(**settings, seed=seed).fit(pool.x, pool.y, pool.weights, pool.cells)


TRAINER = Trainer(_fit, DESCRIPTION, (RECIPE, FORMAT))
