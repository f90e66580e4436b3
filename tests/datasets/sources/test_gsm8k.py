"""GSM8K: the reference is the number after the mark."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgpu.datasets.sources.gsm8k import CARD, load_gsm8k
from sgpu.judges.base import Item
from sgpu.judges.numeric import NumericJudge
from tests.datasets.loading import loader
from tests.datasets.text_fixtures import gsm8k_row, write_gsm8k

loaded = loader(load_gsm8k)


def test_the_card_asks_for_a_chain_of_thought_and_embeds_its_end() -> None:
    assert (CARD.prompt, CARD.max_tokens, CARD.stop) == ("chain-of-thought", 512, ())
    assert CARD.embed == "final_answer"


def test_the_reference_is_the_number_after_the_mark_without_commas(tmp_path: Path) -> None:
    question = loaded(write_gsm8k(tmp_path)).pools["test"][3]
    assert question.question_id == "test:3"
    assert question.text == "Ann has 23 boxes of 1,000 nails. How many nails?"
    assert question.references == ("23000",)
    assert question.all_answers == ("23 * 1000.\n#### 23,000",)


@pytest.mark.parametrize(
    ("answer", "right"), [("The final answer is 23,000.", True), ("It is 2,300.", False)]
)
def test_the_numeric_judge_reads_the_reference(tmp_path: Path, answer: str, right: bool) -> None:
    question = loaded(write_gsm8k(tmp_path)).pools["test"][3]
    (vote,) = NumericJudge().judge([Item(question.text, question.references, answer)])
    assert vote.correct is right


def test_another_configuration_beside_it_is_not_read(tmp_path: Path) -> None:
    write_gsm8k(tmp_path)
    (tmp_path / "socratic").mkdir()
    (tmp_path / "socratic" / "train-00000-of-00001.parquet").write_bytes(b"not Parquet")
    assert len(loaded(tmp_path).pools["train"]) == 12


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (gsm8k_row(1, "The answer is 7."), "without a number after ####"),
        (gsm8k_row(1, "#### seven"), "without a number after ####"),
        (gsm8k_row(1, "####"), "without a number after ####"),
        ({"question": "", "answer": "#### 7"}, "question is blank"),
        ({"question": "How many?", "answer": None}, "answer is None, not text"),
    ],
)
def test_a_malformed_row_is_rejected_and_the_others_keep_their_numbers(
    tmp_path: Path, row: dict[str, str], reason: str
) -> None:
    source = loaded(write_gsm8k(tmp_path, train=[gsm8k_row(1), row, gsm8k_row(3)]))
    assert [q.question_id for q in source.pools["train"]] == ["train:0", "train:2"]
    (rejected,) = source.rejected
    assert rejected.file.endswith("train-00000-of-00001.parquet") and rejected.row == "row 1"
    assert reason in rejected.reason and rejected.remedy
