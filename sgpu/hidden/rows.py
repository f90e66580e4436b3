"""Rows of the hidden_states table: made of response sets, layers by name, read back a row group at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sgpu.engines.base import EngineConfig, Prompt, locate_weights
from sgpu.errors import StageError, UsageError
from sgpu.storage import tables
from sgpu.storage.parquet_files import opened

if TYPE_CHECKING:
    from sgpu.storage.store import Published  # a bare GPU machine has no Delta tables

Halves = NDArray[np.float16]


@dataclass(frozen=True)
class AnswerStates:
    """States of S layers for the N answers to one prompt; NaN for an answer without text.

    ``last`` is at the last token of the answer. ``slt`` and ``tbg`` are the positions of semantic entropy
    probes (Kossen et al. 2024): the second-last generated token, and the last token of the prompt.
    """

    last: Halves  # (S, N, D)
    slt: Halves  # (S, N, D)
    tbg: Halves  # (S, D)

    @property
    def n_missing(self) -> int:
        """Answers without a state."""
        return int(np.isnan(self.last[0, :, 0]).sum())


@dataclass(frozen=True)
class AnsweredPrompt:
    """N answers, as the token ids that were sampled, to a prompt and its sha256; None was withheld."""

    prompt: Prompt
    prompt_sha256: str
    answers: Sequence[Sequence[int] | None]


StatesOf = Callable[[Sequence[AnsweredPrompt]], Sequence[AnswerStates | ValueError]]


@dataclass(frozen=True)
class Wanted:
    """What is kept: layers of all ``n`` answers, and of the first one at some of the probes' positions."""

    layers: list[int]
    n: int
    dim: int
    probe_layers: list[int] = field(default_factory=list)
    positions: list[str] = field(default_factory=list)

    @property
    def table(self) -> tables.Table:
        return tables.hidden_states_table(len(self.layers), self.n, self.dim, len(self.probe_layers))

    @property
    def read_layers(self) -> list[int]:
        """The layers that `states_of` must give, ascending."""
        return sorted({*self.layers, *self.probe_layers})


def hidden_rows(
    responses: pa.Table, prompt_of: Callable[[str], Prompt], states_of: StatesOf, wanted: Wanted
) -> pa.Table:
    """The hidden_states table of a responses table, row for row, from the first n answers.

    ``prompt_of`` a question's id is what it was asked with, or a ValueError. ``states_of`` gives
    ``wanted.read_layers`` of each question, or why there are none. A response set that is itself not "ok" is
    "missing" here; one that cannot be read "failed".
    """
    sets = [_readable(row, wanted.n, prompt_of) for row in responses.to_pylist()]
    read = iter(states_of([answers for answers in sets if isinstance(answers, AnsweredPrompt)]))
    made = [_row(next(read), wanted) if isinstance(answers, AnsweredPrompt) else answers for answers in sets]
    schema = wanted.table.schema
    columns: dict[str, Any] = {name: [row.get(name) for row in made] for name in schema.names}
    columns["question_id"] = responses["question_id"]
    for name in ("states", *(f"probe_{position}" for position in tables.PROBE_POSITIONS)):
        columns[name] = _lists(columns[name], schema.field(name).type)
    return pa.table(columns, schema=schema)


def _readable(
    row: Mapping[str, Any], n: int, prompt_of: Callable[[str], Prompt]
) -> AnsweredPrompt | dict[str, Any]:
    """What is to be read of a response set, or its row where that cannot be."""
    if row["status"] != "ok":
        reason = f"the response set is {row['status']!r}: {row['error'] or 'no reason given'}"
        return {"status": "missing", "error": reason}
    try:
        answers = _token_ids(row, n)
        return AnsweredPrompt(prompt_of(row["question_id"]), row["prompt_sha256"], answers)
    except ValueError as error:
        return {"status": "failed", "error": str(error)}


def _row(states: AnswerStates | ValueError, wanted: Wanted) -> dict[str, Any]:
    """The row of a question that was read, its arrays flat."""
    if isinstance(states, ValueError):
        return {"status": "failed", "error": str(states)}
    position = {layer: i for i, layer in enumerate(wanted.read_layers)}
    probed = [position[layer] for layer in wanted.probe_layers]
    first = {"last": states.last[:, 0], "slt": states.slt[:, 0], "tbg": states.tbg}
    return {
        "status": "ok",
        "n_missing": states.n_missing,
        "layers": wanted.layers,
        "states": states.last[[position[layer] for layer in wanted.layers]].ravel(),
        "probe_layers": wanted.probe_layers if wanted.positions else None,
        **{f"probe_{token}": first[token][probed].ravel() for token in wanted.positions},
    }


def _token_ids(row: Mapping[str, Any], n: int) -> list[Sequence[int] | None]:
    """The tokens of the first n answers, None for one that was withheld; ValueError where they lack."""
    answers, token_ids = row["answers"] or [], row["token_ids"] or []
    if len(answers) < n or len(token_ids) != len(answers):
        raise ValueError(
            f"{len(answers)} answers with the tokens of {len(token_ids)}; {n} of each are needed. "
            "Sample with an engine that runs the model itself."
        )
    for number, (text, ids) in enumerate(zip(answers[:n], token_ids, strict=False)):
        if text and not ids:
            raise ValueError(f"answer {number} has a text, {text[:40]!r}, but no tokens")
    return [None if text is None else ids for text, ids in zip(answers[:n], token_ids, strict=False)]


def _lists(values: Sequence[Halves | None], kind: pa.DataType) -> pa.Array:
    """One flat list a row, null where there is none; Arrow's own conversion takes twenty times as long."""
    if all(value is None for value in values):  # of lists without items Arrow cannot count the rows
        return pa.nulls(len(values), kind)
    filler = np.zeros(kind.list_size, dtype=np.float16)
    items = np.concatenate([filler if value is None else value for value in values])
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.FixedSizeListArray.from_arrays(pa.array(items), type=kind, mask=absent)


@dataclass(frozen=True)
class ModelShape:
    """The language part of a model: its decoder layers and the length of a hidden state."""

    n_layers: int
    dim: int


def model_shape(config: EngineConfig) -> ModelShape:
    """Read from the model's configuration alone, without its weights."""
    from transformers import AutoConfig

    config = locate_weights(config)
    model_config = AutoConfig.from_pretrained(config.model, revision=config.revision, trust_remote_code=False)
    text = model_config.get_text_config(decoder=True)
    return ModelShape(text.num_hidden_layers, text.hidden_size)


def layer_index(name: str | int | float, n_layers: int) -> int:
    """The index among the n_layers + 1 ``hidden_states`` of transformers, 0 being the tokens' embedding.

    "last" is the last layer, after the final norm, as transformers returns it. "middle" is half the number
    of hidden states, as in INSIDE's code: 15 of 30 layers. A whole number is the index itself, or counts from
    the end if it is negative (-1 is "last"); a fraction is a relative depth, 1.0 being "last". Raises
    UsageError for a layer that the model does not have.
    """
    if name == "last":
        return n_layers
    if name == "middle":
        return (n_layers + 1) // 2
    if isinstance(name, float) and 0 < name <= 1:
        return max(1, round(name * n_layers))
    if isinstance(name, int) and -n_layers - 1 <= name <= n_layers:
        return name % (n_layers + 1)
    raise UsageError(
        f"there is no layer {name!r}: the model has {n_layers}. Give a number from 0 (the embedding) to "
        f"{n_layers}, from -1 (the last) to {-n_layers - 1}, a fraction in (0, 1], 'middle', 'last' or 'all'."
    )


def layer_indices(names: Sequence[str | int | float], n_layers: int) -> list[int]:
    """The indices of several layers, ascending, each once; "all" are all of them, the embedding included."""
    if "all" in names:
        return list(range(n_layers + 1))
    return sorted({layer_index(name, n_layers) for name in names})


ROWS_AT_A_TIME = 64


def answer_states(published: Published, question_ids: Sequence[str], layer: str | int | float) -> Halves:
    """(Q, N, D) states of all answers at their last token, in the order of the questions; NaN where missing.

    ``layer`` is a name as in `sgpu.hidden.rows`. Raises StageError if it was not stored.
    """
    wanted = _wanted_of(published)
    index = layer_index(layer, published.manifest["settings"]["n_layers"])
    if index not in wanted.layers:
        raise StageError(
            f"the hidden states of {published.partition} hold layers {wanted.layers} of all answers, "
            f"but not {index} ({layer!r}). Name it under hidden.layers in the study."
        )
    shape = (len(wanted.layers), wanted.n, wanted.dim)
    return _read(published, question_ids, "states", shape, wanted.layers.index(index))


def probe_layers(published: Published) -> list[int]:
    """The layers on the second axis of `probe_states`; 0 is the embedding."""
    return _wanted_of(published).probe_layers


def probe_width(published: Published) -> int:
    """Return the numbers of one row of `probe_states`: its layers times their length."""
    wanted = _wanted_of(published)
    return len(wanted.probe_layers) * wanted.dim


def probe_states(published: Published, question_ids: Sequence[str], position: str) -> Halves:
    """(Q, L, D) states of the first answer at "last", "slt" or "tbg"; NaN where missing.

    Raises StageError if the position was not stored.
    """
    wanted = _wanted_of(published)
    if position not in wanted.positions:
        raise StageError(
            f"the hidden states of {published.partition} hold the first answer at {wanted.positions}, "
            f"but not at {position!r}. Name it under hidden.positions in the study."
        )
    shape = (len(wanted.probe_layers), wanted.dim)
    return _read(published, question_ids, f"probe_{position}", shape, slice(None))


def states_table(published: Published) -> tuple[tables.Table, list[str]]:
    """Return the table of a cell's hidden states, and its columns that hold states."""
    table = _wanted_of(published).table
    return table, [field.name for field in table.schema if pa.types.is_fixed_size_list(field.type)]


def _wanted_of(published: Published) -> Wanted:
    return Wanted(**published.manifest["settings"]["wanted"])


def _read(
    published: Published,
    question_ids: Sequence[str],
    column: str,
    shape: tuple[int, ...],
    part: int | slice,
) -> Halves:
    """A part of each row's array, aligned with the questions; the rest of a row is not kept."""
    if column in published.dropped:
        raise StageError(
            f"the hidden states of {published.partition} were deleted when the study was finished; "
            "--set keep.hidden_states=true makes them again"
        )
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
