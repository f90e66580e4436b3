"""Response sets to rows of the hidden_states table: the pure step beneath the stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sgpu.hidden.states import AnswerStates, Halves
from sgpu.storage import tables

StatesOf = Callable[[str, str, Sequence[Sequence[int] | None]], AnswerStates]


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
        return tables.hidden_states(len(self.layers), self.n, self.dim, len(self.probe_layers))

    @property
    def read_layers(self) -> list[int]:
        """The layers that `states_of` must give, ascending."""
        return sorted({*self.layers, *self.probe_layers})

    @property
    def row_bytes(self) -> int:
        """Bytes of one row as float16."""
        probed = len(self.probe_layers) * len(self.positions)
        return 2 * self.dim * (len(self.layers) * self.n + probed)


def hidden_rows(responses: pa.Table, states_of: StatesOf, wanted: Wanted) -> pa.Table:
    """The hidden_states table of a responses table, row for row, from the first n answers.

    ``states_of`` takes a question's id, the sha256 of its prompt and the token ids of the answers, and gives
    ``wanted.read_layers``. A response set that is itself not "ok" is "missing" here; one that cannot be read
    "failed".
    """
    schema = wanted.table.schema
    rows = [_row(row, states_of, wanted.n) for row in responses.to_pylist()]
    known = [row["states"] is not None for row in rows]
    columns: dict[str, Any] = {
        name: [row[name] for row in rows] for name in ("question_id", "status", "error", "n_missing")
    }
    columns["layers"] = [wanted.layers if ok else None for ok in known]
    columns["probe_layers"] = [wanted.probe_layers if ok and wanted.positions else None for ok in known]
    vectors = [_kept(row["states"], wanted) if row["states"] else {} for row in rows]
    for name in ("states", *(f"probe_{position}" for position in tables.PROBE_POSITIONS)):
        columns[name] = _lists([row.get(name) for row in vectors], schema.field(name).type)
    return pa.table(columns, schema=schema)


def _kept(states: AnswerStates, wanted: Wanted) -> dict[str, Halves]:
    """The columns of one row, by name."""
    place = {layer: index for index, layer in enumerate(wanted.read_layers)}
    probed = [place[layer] for layer in wanted.probe_layers]
    first = {"last": states.last[:, 0], "slt": states.slt[:, 0], "tbg": states.tbg}
    return {
        "states": states.last[[place[layer] for layer in wanted.layers]],
        **{f"probe_{position}": first[position][probed] for position in wanted.positions},
    }


def _row(row: Mapping[str, Any], states_of: StatesOf, n: int) -> dict[str, Any]:
    result = {"question_id": row["question_id"], "error": None, "n_missing": None, "states": None}
    if row["status"] != "ok":
        reason = f"the response set is {row['status']!r}: {row['error'] or 'no reason given'}"
        return result | {"status": "missing", "error": reason}
    try:
        states = states_of(row["question_id"], row["prompt_sha256"], _token_ids(row, n))
    except ValueError as error:
        return result | {"status": "failed", "error": str(error)}
    return result | {"status": "ok", "n_missing": states.n_missing, "states": states}


def _token_ids(row: Mapping[str, Any], n: int) -> list[Sequence[int] | None]:
    """The tokens of the first n answers, None for one that was withheld; ValueError where they lack."""
    answers, token_ids = row["answers"] or [], row["token_ids"] or []
    if len(answers) < n or len(token_ids) != len(answers):
        raise ValueError(
            f"{len(answers)} answers with the tokens of {len(token_ids)}; {n} of each are needed. "
            "Sample with an engine that runs the model itself."
        )
    for place, (text, ids) in enumerate(zip(answers[:n], token_ids, strict=False)):
        if text and not ids:
            raise ValueError(f"answer {place} has a text, {text[:40]!r}, but no tokens")
    return [None if text is None else ids for text, ids in zip(answers[:n], token_ids, strict=False)]


def _lists(values: Sequence[Halves | None], kind: pa.DataType) -> pa.Array:
    """One flat list a row, null where there is none."""
    if all(value is None for value in values):
        return pa.nulls(len(values), kind)
    filler = np.zeros(kind.list_size, dtype=np.float16)
    items = np.concatenate([filler if value is None else value.reshape(-1) for value in values])
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.FixedSizeListArray.from_arrays(pa.array(items), type=kind, mask=absent)
