from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpu.engines.base import Prompt
from sgpu.errors import StageError, UsageError
from sgpu.hidden.rows import (
    AnsweredPrompt,
    AnswerStates,
    Wanted,
    answer_states,
    hidden_rows,
    layer_index,
    layer_indices,
    probe_layers,
    probe_states,
)
from sgpu.storage.store import Partition, Published, Store, on_disk
from sgpu.storage.tables import RESPONSES

CELL = Partition.of(model="m", dataset="d")
N, DIM = 2, 3
WANTED = Wanted([1, 2], N, DIM, probe_layers=[0, 1], positions=["slt", "tbg"])


def made(question_id: str, sha256: str, answers: Sequence[Sequence[int] | None]) -> AnswerStates:
    """Numbers that tell question, layer, answer and position apart."""
    shape = (len(WANTED.read_layers), N, DIM)
    last = (np.arange(np.prod(shape)).reshape(shape) + 100 * int(question_id[1:])).astype(np.float16)
    last[:, [ids is None for ids in answers]] = np.nan
    return AnswerStates(last, last + 1000, last[:, 1] + 2000)


def prompt_of(question_id: str) -> Prompt:
    return Prompt((("user", question_id),), seed=0)


def states_of(prompts: Sequence[AnsweredPrompt]) -> list[AnswerStates | ValueError]:
    wrong = ValueError("the prompt renders to another sha256")
    return [
        wrong if row.prompt_sha256 == "other" else made(question_of(row), row.prompt_sha256, row.answers)
        for row in prompts
    ]


def question_of(row: AnsweredPrompt) -> str:
    return row.prompt.messages[0][1]


def response(question_id: str, **changes: Any) -> dict[str, Any]:
    row = {
        "question_id": question_id,
        "status": "ok",
        "prompt_sha256": "right",
        "answers": ["a", "b"],
        "token_ids": [[5], [6]],
    }
    return row | changes


def rows_of(*responses: dict[str, Any]) -> pa.Table:
    table = pa.Table.from_pylist(list(responses), schema=RESPONSES.schema)
    return hidden_rows(table, prompt_of, states_of, WANTED)


def published(tmp_path: Path, rows: pa.Table) -> Published:
    settings = {"n_layers": 2, "wanted": asdict(WANTED)}
    return Store(tmp_path).write(WANTED.table, CELL, rows, "0" * 64, {"settings": settings})


def test_states_come_back_by_layer_in_the_order_asked_for(tmp_path: Path) -> None:
    table = published(tmp_path, rows_of(response("q1"), response("q2")))
    states = answer_states(table, ["q2", "unknown", "q1"], "last")
    assert states.dtype == np.float16 and states.shape == (3, N, DIM)
    np.testing.assert_array_equal(states[0], made("q2", "", [[], []]).last[2])
    assert np.isnan(states[1]).all()
    np.testing.assert_array_equal(answer_states(table, ["q1"], 1)[0], made("q1", "", [[], []]).last[1])


def test_probes_get_layers_of_the_first_answer(tmp_path: Path) -> None:
    table = published(tmp_path, rows_of(response("q1")))
    expected = made("q1", "", [[], []])
    np.testing.assert_array_equal(probe_states(table, ["q1"], "slt")[0], expected.slt[[0, 1], 0])
    np.testing.assert_array_equal(probe_states(table, ["q1"], "tbg")[0], expected.tbg[[0, 1]])
    assert probe_layers(table) == [0, 1]


def test_what_was_not_stored_is_refused_by_name(tmp_path: Path) -> None:
    table = published(tmp_path, rows_of(response("q1")))
    with pytest.raises(StageError, match=r"hold layers \[1, 2\].*not 0.*hidden\.layers"):
        answer_states(table, ["q1"], 0)
    with pytest.raises(StageError, match=r"at \['slt', 'tbg'\].*'last'.*hidden\.positions"):
        probe_states(table, ["q1"], "last")


def test_a_withheld_answer_is_nan_and_counted() -> None:
    (row,) = rows_of(response("q1", answers=["a", None])).to_pylist()
    states = np.array(row["states"]).reshape(2, N, DIM)
    assert np.isnan(states[:, 1]).all() and np.isfinite(states[:, 0]).all()
    assert row["n_missing"] == 1 and row["status"] == "ok"


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"status": "failed", "error": "too long"}, "missing", "'failed': too long"),
        ({"prompt_sha256": "other"}, "failed", "another sha256"),
        ({"answers": ["a"], "token_ids": [[5]]}, "failed", "1 answers with the tokens of 1; 2 of each"),
        ({"token_ids": None}, "failed", "2 answers with the tokens of 0"),
        ({"token_ids": [[5], []]}, "failed", "answer 1 has a text, 'b', but no tokens"),
    ],
)
def test_a_row_that_cannot_be_read_says_why_and_the_others_stand(
    changes: dict[str, Any], status: str, reason: str
) -> None:
    bad, good = rows_of(response("q1", **changes), response("q2")).to_pylist()
    assert bad["status"] == status and reason in bad["error"]
    assert bad["states"] is None and bad["probe_slt"] is None
    assert good["status"] == "ok" and good["states"] is not None


def test_a_position_that_was_not_asked_for_is_null() -> None:
    assert rows_of(response("q1"))["probe_last"].null_count == 1


def test_the_files_hold_plain_float32_lists_that_polars_reads_in_two_bytes_a_number(tmp_path: Path) -> None:
    n, dim = 20, 576
    wanted = Wanted([1], n, dim)
    numbers = np.random.default_rng(0).normal(size=(16, 1, n, dim)).astype(np.float16)

    def states(prompts: Sequence[AnsweredPrompt]) -> list[AnswerStates | ValueError]:
        own = [numbers[int(question_of(row)[1:])] for row in prompts]
        return [AnswerStates(last, last, last[:, 0]) for last in own]

    sets = [response(f"q{i}", answers=["a"] * n, token_ids=[[5]] * n) for i in range(16)]
    rows = hidden_rows(pa.Table.from_pylist(sets, schema=RESPONSES.schema), prompt_of, states, wanted)
    table = Store(tmp_path).write(wanted.table, CELL, rows, "0" * 64, {})
    (file,) = table.files
    assert pq.read_schema(file).field("states").type == pa.list_(pa.float32())
    stored = pl.read_delta(str(tmp_path / "tables" / "hidden_states"))["states"].explode().to_numpy()
    np.testing.assert_array_equal(stored.astype(np.float16), numbers.reshape(-1))
    metadata = pq.read_metadata(file).row_group(0)
    size = next(
        column.total_compressed_size
        for column in map(metadata.column, range(metadata.num_columns))
        if column.path_in_schema.startswith("states")
    )
    assert size < 2.6 * numbers.size


def test_no_probe_layers_is_a_table_of_its_own_right() -> None:
    wanted = Wanted([0, 1, 2], N, DIM)
    table = pa.Table.from_pylist([response("q1")], schema=RESPONSES.schema)
    rows = hidden_rows(table, prompt_of, lambda _: [made("q1", "", [[], []])], wanted)
    assert rows.cast(on_disk(wanted.table.schema))["probe_slt"].null_count == 1


@pytest.mark.parametrize(
    ("name", "index"),
    [("last", 30), ("middle", 15), (0, 0), (7, 7), (30, 30), (-1, 30), (-31, 0), (0.2, 6), (1.0, 30)],
)
def test_names_of_the_layers_of_a_model_with_thirty(name: str | int | float, index: int) -> None:
    assert layer_index(name, 30) == index


@pytest.mark.parametrize("n_layers", [1, 2, 5, 28, 33])
def test_middle_is_half_the_number_of_hidden_states_with_the_embedding(n_layers: int) -> None:
    assert layer_index("middle", n_layers) == int(len(range(n_layers + 1)) / 2)


def test_layers_come_ascending_and_once() -> None:
    assert layer_indices(["last", 4, "middle", 2, -1], 4) == [2, 4]
    assert layer_indices(["middle", "all"], 3) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", [31, -32, 1.5, -0.5, "first"])
def test_a_layer_that_is_not_there_is_refused_with_the_choices(name: str | int | float) -> None:
    with pytest.raises(UsageError, match=r"no layer .* has 30.*'middle', 'last' or 'all'"):
        layer_index(name, 30)
