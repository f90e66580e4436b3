"""Reading hidden states back from the table, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sgpu.errors import StageError
from sgpu.hidden.layers import layer_index
from sgpu.hidden.states import Halves
from sgpu.storage.parquet_files import opened
from sgpu.storage.store import Published

ROWS_AT_A_TIME = 64


def answer_states(published: Published, question_ids: Sequence[str], layer: str | int | float) -> Halves:
    """(Q, N, D) states of all answers at their last token, in the order of the questions; NaN where missing.

    ``layer`` is a name as in `sgpu.hidden.layers`. Raises StageError if it was not stored.
    """
    settings = published.manifest["settings"]
    index = layer_index(layer, settings["n_layers"])
    if index not in settings["layers"]:
        raise StageError(
            f"the hidden states of {published.partition} hold layers {settings['layers']} of all answers, "
            f"but not {index} ({layer!r}). Name it under hidden.layers in the study."
        )
    shape = (len(settings["layers"]), settings["n"], settings["dim"])
    return _read(published, question_ids, "states", shape, settings["layers"].index(index))


def probe_layers(published: Published) -> list[int]:
    """The layers on the second axis of `probe_states`; 0 is the embedding."""
    return [int(layer) for layer in published.manifest["settings"]["probe_layers"]]


def probe_states(published: Published, question_ids: Sequence[str], position: str) -> Halves:
    """(Q, L, D) states of the first answer at "last", "slt" or "tbg"; NaN where missing.

    Raises StageError if the position was not stored.
    """
    settings = published.manifest["settings"]
    if position not in settings["positions"]:
        raise StageError(
            f"the hidden states of {published.partition} hold the first answer at {settings['positions']}, "
            f"but not at {position!r}. Name it under hidden.positions in the study."
        )
    shape = (len(settings["probe_layers"]), settings["dim"])
    return _read(published, question_ids, f"probe_{position}", shape, slice(None))


def _read(
    published: Published,
    question_ids: Sequence[str],
    column: str,
    shape: tuple[int, ...],
    part: int | slice,
) -> Halves:
    """A part of each row's array, aligned with the questions; the rest of a row is not kept."""
    places = {question_id: row for row, question_id in enumerate(question_ids)}
    kept = shape[1:] if isinstance(part, int) else shape
    states = np.full((len(places), *kept), np.nan, dtype=np.float16)
    for ids, block in _blocks(published, column, shape):
        for question_id, of_question in zip(ids, block, strict=True):
            if question_id in places:
                states[places[question_id]] = of_question[part]
    return states


def _blocks(published: Published, column: str, shape: tuple[int, ...]) -> Iterator[tuple[list[str], Halves]]:
    """Ids and arrays of the rows that have any; a list of another length does not fit ``shape``."""
    for file in published.files:
        for batch in opened(file).iter_batches(ROWS_AT_A_TIME, columns=["question_id", column]):
            rows = batch.filter(batch.column(column).is_valid())
            values = rows.column(column).flatten().to_numpy(zero_copy_only=False).astype(np.float16)
            yield rows.column("question_id").to_pylist(), values.reshape(rows.num_rows, *shape)
