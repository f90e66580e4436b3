"""TriviaQA: repeated questions once, none of test in train, and references in their order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu.datasets.base import LoadRequest, Source
from sgpu.datasets.sources import triviaqa
from sgpu.datasets.sources.triviaqa import load_triviaqa
from sgpu.errors import DataError
from tests.datasets.loading import loader
from tests.datasets.text_fixtures import TRIVIAQA_TRAIN, triviaqa_row, write_triviaqa

loaded = loader(load_triviaqa)


def ids(source: Source, pool: str) -> list[str]:
    return [question.question_id for question in source.pools[pool]]


def test_references_are_the_answer_and_its_aliases_once_each_in_order(tmp_path: Path) -> None:
    question = loaded(write_triviaqa(tmp_path)).pools["train"][0]
    assert (question.question_id, question.text) == ("tc_1", "Which river runs through Cairo?")
    assert question.references == ("Nile", "The Nile", "River Nile")


def test_repeated_questions_are_taken_once_and_those_of_test_leave_train(tmp_path: Path) -> None:
    source = loaded(write_triviaqa(tmp_path))
    # bt_9 and tc_2 ask the same; the smaller id stays. tc_7 is dp_1 of test.
    assert ids(source, "train") == ["tc_1", "bt_9", *(f"qw_{i}" for i in range(10, 20))]
    assert ids(source, "test") == ["dp_1", *(f"sf_{i}" for i in range(10, 15))]
    assert source.notes == (
        "train: 2 rows repeat a question and are taken once.",
        "test: 0 rows repeat a question and are taken once.",
        "train: 1 questions are in test too and stay there.",
    )
    assert source.rejected == ()


def test_row_order_does_not_decide_which_question_stays(tmp_path: Path) -> None:
    first = loaded(write_triviaqa(tmp_path / "a"))
    second = loaded(write_triviaqa(tmp_path / "b", train=TRIVIAQA_TRAIN[::-1]))
    assert sorted(ids(first, "train")) == sorted(ids(second, "train"))


def test_an_id_of_test_leaves_train_whatever_its_text(tmp_path: Path) -> None:
    train = [triviaqa_row("dp_1", "Another wording?", "x"), triviaqa_row("tc_3", "Who is it?", "y")]
    assert ids(loaded(write_triviaqa(tmp_path, train=train)), "train") == ["tc_3"]


def test_other_configurations_beside_it_are_not_read(tmp_path: Path) -> None:
    write_triviaqa(tmp_path)
    (tmp_path / "rc").mkdir()
    (tmp_path / "rc" / "train-00000-of-00001.parquet").write_bytes(b"not Parquet")
    assert len(loaded(tmp_path).pools["train"]) == 12


def test_files_without_a_folder_of_their_configuration_are_read(tmp_path: Path) -> None:
    assert len(loaded(write_triviaqa(tmp_path) / "rc.nocontext").pools["train"]) == 12


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (triviaqa_row("", "Who?", "x"), "question_id is blank"),
        (triviaqa_row("a", "  ", "x"), "question is blank"),
        (triviaqa_row("a", "Who?", None), "value is None, not text"),
        (triviaqa_row("a", "Who?", " "), "value is blank"),
        (triviaqa_row("a", "Who?", "<unk>"), "the answer is <unk>"),
        (triviaqa_row("a", "Who?", "x", [None]), "aliases is None, not text"),
        ({**triviaqa_row("a", "Who?", "x"), "answer": None}, "answer is None, not a struct"),
    ],
)
def test_a_malformed_row_is_rejected_and_the_others_go_on(
    tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    source = loaded(write_triviaqa(tmp_path, validation=[row, triviaqa_row("b", "Who else?", "y")]))
    assert ids(source, "test") == ["b"]
    (rejected,) = source.rejected
    assert rejected.file.endswith("validation-00000-of-00001.parquet") and rejected.row == "row 0"
    assert reason in rejected.reason and rejected.remedy


def test_rows_are_counted_before_repeated_ones_are_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triviaqa, "CARD", replace(triviaqa.CARD, pools={"train": 15, "test": 6}))
    assert len(load_triviaqa(LoadRequest(write_triviaqa(tmp_path))).pools["train"]) == 12


def test_a_folder_without_validation_names_what_it_has(tmp_path: Path) -> None:
    folder = write_triviaqa(tmp_path) / "rc.nocontext"
    (folder / "validation-00000-of-00001.parquet").unlink()
    with pytest.raises(DataError, match=r"no Parquet file of the split 'validation'.*Found: train-00000"):
        loaded(tmp_path)
