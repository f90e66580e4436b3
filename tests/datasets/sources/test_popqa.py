"""PopQA: quoted JSON in a tab-separated file, one subject on one side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sgpu.datasets.base import LoadRequest
from sgpu.datasets.sources import popqa
from sgpu.datasets.sources.popqa import CARD, load_popqa
from sgpu.datasets.split import split_questions
from sgpu.errors import DataError
from tests.datasets.loading import loader
from tests.datasets.text_fixtures import popqa_row, write_popqa

loaded = loader(load_popqa)

# One line in the form of the Hub's file, by hand: quotes are doubled inside a quoted field.
LINE = (
    "4222362\tGeorge Rankin\toccupation\tpolitician\t1850297\t22\t2834605\t"
    '"[""George James Rankin""]"\t"[""political leader"",""pol""]"\thttp://e/1\thttp://e/2\tGeorge Rankin\t'
    "Politician\t142\t25692\tWhat is George Rankin's occupation?\t"
    '"[""politician"", ""political leader"", ""pol""]"'
)


def test_the_card_pins_the_revision_of_the_hub() -> None:
    assert CARD.hub[0].revision == "098765c79ea10a2cb19c828324e33281b8336ec0"


def test_a_line_of_the_source_becomes_a_question_with_a_list_of_references(tmp_path: Path) -> None:
    file = write_popqa(tmp_path, []) / "test.tsv"
    file.write_text(file.read_text() + LINE + "\n")
    (question,) = loaded(tmp_path).pools["all"]
    assert question.question_id == "4222362" and question.group == "1850297"
    assert question.text == "What is George Rankin's occupation?"
    assert question.references == ("politician", "political leader", "pol")
    assert question.meta == {"prop": "occupation", "s_pop": 142, "o_pop": 25692}


def test_quotes_inside_quotes_survive(tmp_path: Path) -> None:
    assert loaded(write_popqa(tmp_path)).pools["all"][0].references[2] == 'so-called "pol"'


def test_a_file_with_carriage_returns_and_a_mark_of_its_encoding_is_the_same(tmp_path: Path) -> None:
    plain = write_popqa(tmp_path / "a") / "test.tsv"
    (tmp_path / "b").mkdir()
    other = plain.read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / "b" / "test.tsv").write_bytes(b"\xef\xbb\xbf" + other)
    assert loaded(tmp_path / "a").pools == loaded(tmp_path / "b").pools


def test_a_subject_never_stands_on_two_sides(tmp_path: Path) -> None:
    split = split_questions(loaded(write_popqa(tmp_path)), n_train=10, n_test=5, seed=0)
    sides: dict[str, set[str]] = {}
    for row in split.rows:
        sides.setdefault(row.question.group, set()).add(row.split)
    assert all(len(where) == 1 for where in sides.values())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"possible_answers": "politician"}, "possible_answers is 'politician', not JSON"),
        ({"possible_answers": '"politician"'}, "possible_answers is 'politician', not a list"),
        ({"possible_answers": "[]"}, "possible_answers has no answer"),
        ({"possible_answers": "[1]"}, "possible_answers is 1, not text"),
        ({"possible_answers": ""}, "possible_answers is blank"),
        ({"question": " "}, "question is blank"),
        ({"subj_id": ""}, "subj_id is blank"),
        ({"s_pop": "many"}, "s_pop is 'many', not a whole number"),
        ({"id": ""}, "id is '', not a whole number"),
        ({"id": "4222363"}, "the id '4222363' was already used by"),
    ],
)
def test_a_malformed_row_is_rejected_and_the_others_go_on(
    tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    rows = [popqa_row(i) for i in range(5)]
    rows[3] |= changes
    source = loaded(write_popqa(tmp_path, rows))
    assert len(source.pools["all"]) == 4
    (rejected,) = source.rejected
    assert (rejected.file, rejected.row) == (str(tmp_path / "test.tsv"), "line 5")
    assert reason in rejected.reason and rejected.remedy


@pytest.mark.parametrize(
    ("line", "reason"),
    [("1\t2\t3", "the line has 3 fields, expected 17"), ('"a"b\tc', "the line cannot be read: ")],
)
def test_a_line_that_is_no_row_is_rejected_and_still_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, reason: str
) -> None:
    monkeypatch.setattr(popqa, "CARD", replace(popqa.CARD, pools={"all": 21}))
    file = write_popqa(tmp_path) / "test.tsv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:4], line, *lines[4:]]) + "\n")
    source = load_popqa(LoadRequest(tmp_path))
    assert [(row.row, reason in row.reason) for row in source.rejected] == [("line 5", True)]
    assert len(source.pools["all"]) == 20


def test_a_missing_column_is_named_with_those_found(tmp_path: Path) -> None:
    file = write_popqa(tmp_path) / "test.tsv"
    file.write_text(file.read_text().replace("possible_answers", "answers", 1))
    with pytest.raises(DataError, match=r"no column possible_answers.*found answers, id"):
        loaded(tmp_path)


def test_a_folder_without_the_file_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"0 files test\.tsv, expected 1\. Found: nothing\. Put test\.tsv of"):
        loaded(tmp_path)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read as tab-separated UTF-8"):
        loaded(tmp_path)
