"""Training rows of one cell or of a pool, for all answers of a question and for fewer of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgpu.gp.fitting import TrainingRows
from sgpu.gp.heads import SIZE_FREE
from sgpu.gp.pooling import row_weights
from sgpu.gp.representation import sized_rows
from sgpu.storage.store import Published

Floats = NDArray[np.float64]
# Questions are seen with every size as long as there are no more rows than this: then with fewer each.
SIZED_ROWS = 30_000


@dataclass(frozen=True)
class Training:
    """Spectra (M, n) of M training questions for each number of answers n, ``own`` the largest; labels (M,).

    A pool has the ``cell`` (M,) of each question, and ``weights`` (M,) where they do not count alike.
    """

    by_size: Mapping[int, Floats]
    n: int
    label: NDArray[np.int64]
    weights: Floats | None = None
    cell: NDArray[np.int64] | None = None

    def own(self) -> TrainingRows:
        """Rows of the classifier of all N answers."""
        return self._rows(self.n)

    def others(self, kind: str, seed: int) -> dict[str, TrainingRows]:
        """Rows of the classifiers for other numbers of answers, by their place in a bundle."""
        smaller = [n for n in self.by_size if n < self.n]
        if kind == "none" or not smaller:
            return {}
        if kind == "heads":
            return {f"heads/{n}": self._rows(n) for n in smaller}
        made = sized_rows(self.by_size, seed, SIZED_ROWS)
        weights = None if self.weights is None else self.weights[made.question]
        # A search of hyper-parameters on a part of the rows sees every size of every cell.
        cell = 0 if self.cell is None else self.cell[made.question]
        group = (cell * (self.n + 1) + made.size).astype(np.int64)
        return {SIZE_FREE: TrainingRows(made.x, self.label[made.question], weights, group)}

    def _rows(self, n: int) -> TrainingRows:
        known = ~np.isnan(self.by_size[n]).any(axis=1)
        weights = None if self.weights is None else self.weights[known]
        cell = None if self.cell is None else self.cell[known]
        return TrainingRows(self.by_size[n][known], self.label[known], weights, cell)


def pooled(parts: Sequence[Training], pool: str) -> Training:
    """The questions of several cells of one N as one training set; see `sgpu.gp.pooling.row_weights`."""
    sizes = sorted(set.intersection(*(set(part.by_size) for part in parts)))
    cell = np.repeat(np.arange(len(parts)), [len(part.label) for part in parts])
    by_size = {n: np.concatenate([part.by_size[n] for part in parts]) for n in sizes}
    label = np.concatenate([part.label for part in parts])
    return Training(by_size, parts[0].n, label, row_weights(cell, pool), cell)


def subset_spectra(
    spectra: Published, question_ids: Sequence[str], sizes: Sequence[int]
) -> dict[int, Floats]:
    """For each size n the spectra (Q, n) of n of the answers, as the encode stage drew them; NaN for none."""
    if not sizes:
        return {}
    stored = {
        row["question_id"]: dict(zip(row["prefixes"], row["prefix_eigenvalues"], strict=True))
        for row in spectra.read(["question_id", "prefixes", "prefix_eigenvalues"]).to_pylist()
        if row["prefixes"]
    }
    return {
        n: np.asarray(
            [stored.get(key, {}).get(n, [np.nan] * n) for key in question_ids], dtype=np.float64
        ).reshape(len(question_ids), n)
        for n in sizes
    }
