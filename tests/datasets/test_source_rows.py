"""Rows become questions one by one; the values of a row are checked where they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgpu.datasets.base import Question, RejectedRow
from sgpu.datasets.response_rows import RowError
from sgpu.datasets.source_rows import (
    SourceReading,
    SourceRow,
    folder_named,
    listing,
    number_of,
    references_of,
    text_of,
)

FILE = Path("some/file.tsv")


def rows(*names: str) -> list[SourceRow]:
    return [SourceRow(FILE, f"line {i}", {"id": name}) for i, name in enumerate(names)]


def question_of(number: int, row: SourceRow) -> Question:
    if row.values["id"] == "bad":
        raise RowError("it is bad", "Make it good.")
    return Question(row.values["id"], f"Text {number}?", ("yes",), "g")


def test_a_bad_row_is_rejected_counted_and_does_not_stop_the_others() -> None:
    reading = SourceReading()
    questions, found = reading.questions(rows("a", "bad", "b"), question_of)
    assert [(q.question_id, q.text) for q in questions] == [("a", "Text 0?"), ("b", "Text 2?")]
    assert found == 3
    assert reading.rejected == [RejectedRow("some/file.tsv", "line 1", "it is bad", "Make it good.")]


def test_an_id_of_an_earlier_pool_is_rejected_where_ids_are_unique() -> None:
    reading = SourceReading()
    reading.questions(rows("a"), question_of)
    questions, _ = reading.questions(rows("a", "b"), question_of)
    assert [q.question_id for q in questions] == ["b"]
    assert reading.rejected[0].reason == "the id 'a' was already used by file.tsv, line 0"


def test_repeated_ids_may_be_left_to_the_loader() -> None:
    reading = SourceReading()
    questions, _ = reading.questions(rows("a", "a"), question_of, unique_ids=False)
    assert len(questions) == 2 and reading.rejected == []


@pytest.mark.parametrize(("value", "number"), [(0, 0), (7, 7), ("12", 12), (" 12 ", 12)])
def test_a_whole_number_may_be_written_in_digits(value: Any, number: int) -> None:
    assert number_of({"n": value}, "n") == number


@pytest.mark.parametrize("value", [None, True, 1.0, "1.5", "-1", "", "²", -1, 10])
def test_what_is_no_whole_number_in_range_is_refused_by_its_column(value: Any) -> None:
    with pytest.raises(RowError, match="n is "):
        number_of({"n": value}, "n", below=10)


def test_references_keep_their_order_without_blanks_and_repetitions() -> None:
    assert references_of(["b", "", " a ", " ", "b", "a"], "references") == ("b", "a")


def test_a_long_value_is_cut_in_the_reason() -> None:
    with pytest.raises(RowError) as caught:
        text_of({"question": ["x" * 1000]}, "question")
    assert len(caught.value.reason) < 100


def test_a_folder_is_found_below_the_root_or_is_the_root(tmp_path: Path) -> None:
    (tmp_path / "a" / "main").mkdir(parents=True)
    (tmp_path / "other").write_text("")
    assert folder_named(tmp_path, "main") == tmp_path / "a" / "main"
    assert folder_named(tmp_path, "other") == tmp_path
    assert listing(tmp_path) == "a/, other"
