"""What of an answer is embedded."""

from __future__ import annotations

import pyarrow as pa

from sgpu.encoders.texts import embedded_texts, with_embedded_texts

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
