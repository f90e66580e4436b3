"""Rows of the score table as a model would have written them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sgpu.scoring.tables import SCORES
from sgpu.watch.sketch import Sketch, sketch_of


def scores(
    n: int,
    seed: int = 0,
    *,
    shift: float = 0.0,
    disagreement: float = 0.1,
    sizes: tuple[int, ...] = (20,),
    models: tuple[str | None, ...] = ("m",),
    routes: tuple[str | None, ...] = ("r",),
    labelled: float = 0.0,
    challenger_noise: float | None = None,
    cut: float | None = None,
    scorer: str = "s1",
    encoder: str = "e1",
) -> pa.Table:
    """``n`` rows: logits of the probabilities are normal around 0.5 + ``shift``, labels follow them.

    ``disagreement`` is the median of the Dirichlet parameter of the spectra.
    """
    draw = np.random.default_rng(seed)
    logit = draw.normal(0.5 + shift, 1.0, n)
    probability = 1 / (1 + np.exp(-logit))
    size = draw.choice(sizes, n)
    spectra = [made_spectrum(draw, int(k), disagreement) for k in size]
    columns: dict[str, Any] = {
        "request_id": [f"{seed}-{row}" for row in range(n)],
        "model": [models[i] for i in draw.integers(len(models), size=n)],
        "route": [routes[i] for i in draw.integers(len(routes), size=n)],
        "n_used": size,
        "probability": probability,
        "std": np.full(n, 0.1),
        "unsafe": np.abs(probability - 0.5) <= 0.05,
        "spectrum": spectra,
        "top_eigenvalue_share": [values[0] / len(values) for values in spectra],
        "label": np.where(draw.random(n) < labelled, draw.random(n) < probability, np.nan),
        "accepted": None if cut is None else probability >= cut,
        "scorer_sha256": [scorer] * n,
        "encoder_sha256": [encoder] * n,
    }
    if challenger_noise is not None:
        columns["shadow_probability"] = 1 / (1 + np.exp(-logit - draw.normal(0, challenger_noise, n)))
        columns["shadow_unsafe"] = [False] * n
        columns["shadow_scorer"] = ["challenger/2"] * n
    return table(n, columns)


def made_spectrum(draw: np.random.Generator, size: int, disagreement: float) -> list[float]:
    """Eigenvalues of ``size`` answers, descending, their sum ``size``."""
    share = draw.dirichlet(np.full(size, disagreement * np.exp(draw.normal())))
    share = share if np.isfinite(share).all() else np.eye(size)[0]
    return (-np.sort(-share) * size).tolist()


def table(n: int, columns: dict[str, Any]) -> pa.Table:
    """These columns as the score table, the others null."""
    arrays = []
    for field in SCORES.schema:
        values = columns.get(field.name)
        made = [None] * n if values is None else values
        from_pandas = isinstance(made, np.ndarray) and made.dtype.kind == "f"  # NaN is null
        arrays.append(pa.array(made, from_pandas=from_pandas).cast(field.type, safe=False))
    return pa.Table.from_arrays(arrays, names=SCORES.schema.names)


def without_spectra(rows: pa.Table, first: int) -> pa.Table:
    """The rows, of which the first have no spectrum, as if they were read by agreement."""
    for name in ("spectrum", "top_eigenvalue_share"):
        place, values = rows.column_names.index(name), rows[name].to_pylist()
        column = pa.array([None] * first + values[first:], SCORES.schema.field(name).type)
        rows = rows.set_column(place, name, column)
    return rows


def sketch(n: int, seed: int = 0, **changes: Any) -> Sketch:
    return sketch_of(scores(n, seed, **changes))
