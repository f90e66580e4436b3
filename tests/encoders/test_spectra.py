"""Spectra of sets of one size and of different sizes, from one pass of the encoder; what is embedded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from sgpu.encoders import Encoder, spectra
from sgpu.encoders.remembered import RememberingEncoder, VectorsInMemory
from sgpu.encoders.spectra import (
    EmbeddedSets,
    drawn_orders,
    embedded_texts,
    spectra_by_set_size,
    spectra_rows,
    with_embedded_texts,
)
from sgpu.errors import DataError
from sgpu.storage import tables

CHAIN = "She has 3 + 4 = 7 apples. The final answer is 7."


def test_the_whole_answer_by_default() -> None:
    assert embedded_texts([CHAIN, None, ""], "full") == [CHAIN, None, ""]


def test_the_final_answer_of_a_chain() -> None:
    assert embedded_texts([CHAIN], "final_answer") == ["7"]


def test_a_missing_answer_stays_missing_and_one_without_a_result_whole() -> None:
    assert embedded_texts([None, "I do not know"], "final_answer") == [None, "I do not know"]


def test_only_the_answers_of_a_table_change() -> None:
    table = pa.table({"question_id": ["a", "b"], "answers": pa.array([[CHAIN], None], pa.list_(pa.string()))})
    changed = with_embedded_texts(table, "final_answer")
    assert changed["question_id"].to_pylist() == ["a", "b"]
    assert changed["answers"].to_pylist() == [["7"], None]
    assert with_embedded_texts(table, "full") is table


class OneHotEncoder:
    """Every distinct text gets its own axis, so the eigenvalues are the counts of the texts."""

    name = "one-hot"
    dtype = "float32"
    dim = 64
    fingerprint = "0"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        axes = []
        for text in texts:
            if text not in self.seen:
                self.seen.append(text)
            axes.append(self.seen.index(text))
        self.calls = len(texts)
        return np.eye(self.dim, dtype=np.float32)[axes].reshape(-1, self.dim)


def responses(rows: list[tuple[str, str, str | None, list[str | None] | None]]) -> pa.Table:
    names = ["question_id", "status", "error", "answers"]
    schema = pa.schema([tables.RESPONSES.schema.field(name) for name in names])
    return pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)), schema=schema)


def spectra_of(sets: Sequence[Sequence[str]], encoder: Encoder) -> NDArray[np.float64]:
    """Return the spectra of sets of one size."""
    return EmbeddedSets.of(sets, len(sets[0]), encoder).spectra()


def test_spectra_are_the_counts_of_the_texts() -> None:
    values = spectra_of([["a", "a", "b"], ["c", "c", "c"], ["a", "b", "c"]], OneHotEncoder())
    assert values == pytest.approx(np.array([[2, 1, 0], [3, 0, 0], [1, 1, 1]]), abs=1e-14)


def test_each_distinct_text_is_encoded_once() -> None:
    encoder = OneHotEncoder()
    spectra_of([["a", "b"], ["b", "a"], ["c", "a"]], encoder)
    assert encoder.calls == 3


def test_sets_beyond_one_block_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgpu.encoders.spectra.VECTORS_AT_A_TIME", 10)
    sets = [["a"] * k + [f"x{i}" for i in range(5 - k)] for k in (5, 4, 3, 2, 1)]
    assert spectra_of(sets, OneHotEncoder())[:, 0] == pytest.approx([5, 4, 3, 2, 1])


def test_rows_keep_their_order_and_say_why_a_spectrum_is_absent() -> None:
    table = spectra_rows(
        responses(
            [
                ("q0", "ok", None, ["a", "a", "b"]),
                ("q1", "failed", "engine died", None),
                ("q2", "ok", None, ["a", "b"]),
                ("q3", "ok", None, ["a", None, "b"]),
                ("q4", "ok", None, None),
                ("q5", "ok", None, ["", "", ""]),
            ]
        ),
        OneHotEncoder(),
        n=3,
    )
    rows = table.to_pylist()
    assert [row["question_id"] for row in rows] == ["q0", "q1", "q2", "q3", "q4", "q5"]
    assert [row["status"] for row in rows] == ["ok", "missing", "failed", "failed", "failed", "ok"]
    assert "engine died" in rows[1]["error"]
    assert "2 answers, 3 needed" in rows[2]["error"]
    assert "answer 1 is null" in rows[3]["error"]
    assert [row["eigenvalues"] is None for row in rows] == [False, True, True, True, True, False]
    assert rows[0]["eigenvalues"] == pytest.approx([2, 1, 0], abs=1e-14)
    assert rows[0]["cosines"] == [1, 0, 0]
    assert rows[5]["eigenvalues"] == pytest.approx([3, 0, 0], abs=1e-14)
    assert [row["n_distinct"] for row in rows] == [2, None, None, None, None, 1]


def test_only_the_first_n_answers_count() -> None:
    [row] = spectra_rows(
        responses([("q", "ok", None, ["a", "a", "b", "c"])]), OneHotEncoder(), n=2
    ).to_pylist()
    assert (row["n"], row["n_distinct"]) == (2, 1)
    assert row["eigenvalues"] == pytest.approx([2, 0], abs=1e-14)


def test_table_has_the_schema_of_the_spectra_table() -> None:
    table = spectra_rows(responses([("q", "failed", None, None)]), OneHotEncoder(), n=20)
    assert table.schema.equals(tables.spectra_table(20).schema)
    empty = responses([("q", "ok", None, [])]).slice(0, 0)
    assert spectra_rows(empty, OneHotEncoder(), n=20).schema.equals(tables.spectra_table(20).schema)


def test_prefixes_are_spectra_of_the_first_answers_in_a_drawn_order_from_one_encoding() -> None:
    answers = ["a", "b", "a", "a"]
    rows = responses([("q", "ok", None, answers), ("r", "failed", "no", None)])
    encoder = OneHotEncoder()
    first, second = spectra_rows(rows, encoder, n=4, prefixes=[2, 3]).to_pylist()
    assert encoder.calls == 2
    assert first["prefixes"] == [2, 3]
    drawn = [answers[place] for place in drawn_orders(["q"], 4)[0]]
    for size, found in zip([2, 3], first["prefix_eigenvalues"], strict=True):
        # One axis for each distinct text, so the eigenvalues are the counts of the texts.
        counts = sorted(Counter(drawn[:size]).values(), reverse=True)
        assert found == pytest.approx([*counts, *[0] * (size - len(counts))], abs=1e-14)
    assert first["eigenvalues"] == pytest.approx([3, 1, 0, 0], abs=1e-14)
    assert second["prefixes"] is None and second["prefix_eigenvalues"] is None


def test_an_order_is_drawn_by_its_question_alone() -> None:
    both = drawn_orders(["q", "r"], 20)
    assert np.array_equal(drawn_orders(["r"], 20)[0], both[1])
    assert sorted(both[0]) == sorted(both[1]) == list(range(20))
    assert not np.array_equal(both[0], both[1])


SETS = [["a", "b"], ["a", "a", "c"], ["d", "b"], ["a"] * 40, ["e", "f", "a"]]


class RandomEncoder:
    """A random unit vector for every text, the same at each call."""

    name, dtype, dim, fingerprint = "random", "float32", 8, "f00d"

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls.append(list(texts))
        rows = np.array([np.random.default_rng(ord(text[0])).normal(size=self.dim) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_each_text_is_encoded_once_for_all_sizes() -> None:
    encoder = RandomEncoder()
    spectra_by_set_size(SETS, encoder)
    assert encoder.calls == [["a", "b", "c", "d", "e", "f"]]


def test_spectra_are_those_of_each_size_alone_to_the_last_bit() -> None:
    found = spectra_by_set_size(SETS, RandomEncoder())
    assert {n: sized.rows.tolist() for n, sized in found.items()} == {2: [0, 2], 3: [1, 4], 40: [3]}
    for n, sized in found.items():
        own = spectra_of([SETS[row] for row in sized.rows], RandomEncoder())
        assert own.shape[1] == n
        assert np.array_equal(sized.spectra, own)


def test_small_blocks_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = spectra_by_set_size(SETS, RandomEncoder())
    monkeypatch.setattr(spectra, "VECTORS_AT_A_TIME", 1)
    for n, sized in spectra_by_set_size(SETS, RandomEncoder()).items():
        assert np.array_equal(sized.spectra, whole[n].spectra)


def test_no_sets_give_nothing_and_an_empty_one_is_refused() -> None:
    assert spectra_by_set_size([], RandomEncoder()) == {}
    with pytest.raises(DataError, match="set 1 is empty"):
        spectra_by_set_size([["a"], []], RandomEncoder())


def test_a_second_reader_has_only_new_texts_encoded() -> None:
    encoder = RandomEncoder()
    remembering = RememberingEncoder(encoder, VectorsInMemory())
    first = remembering.encode(["a", "b"])
    second = remembering.encode(["b", "c", "a"])
    assert encoder.calls == [["a", "b"], ["c"]]
    assert np.array_equal(second[[2, 0]], first)
    assert np.array_equal(second, RandomEncoder().encode(["b", "c", "a"]))


def test_what_is_forgotten_is_encoded_again() -> None:
    encoder = RandomEncoder()
    memory = VectorsInMemory()
    remembering = RememberingEncoder(encoder, memory)
    remembering.encode(["a"])
    memory.forget()
    remembering.encode(["a"])
    assert encoder.calls == [["a"], ["a"]]


def test_no_more_texts_are_kept_than_asked_for() -> None:
    encoder = RandomEncoder()
    remembering = RememberingEncoder(encoder, VectorsInMemory(most=2))
    remembering.encode(["a", "b"])
    remembering.encode(["a"])  # it held two
    assert encoder.calls == [["a", "b"], ["a"]]
    assert remembering.encode(["a", "b"]).shape == (2, 8)
