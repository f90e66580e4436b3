"""GSM8K: the reference is the number after the mark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpu.datasets.base import DATASETS, LoadRequest, Source
from sgpu.datasets.sources import gsm8k
from sgpu.datasets.sources.gsm8k import CARD, load_gsm8k
from sgpu.datasets.split import split_questions
from sgpu.errors import DataError, UsageError
from sgpu.judges.base import Item
from sgpu.judges.numeric import NumericJudge
from sgpu.models.cards import PROMPT_FORMS
from tests.datasets.text_fixtures import gsm8k_row, write_gsm8k

IDS = {
    "train": "d25fc80c733fda2f7d9a9d0b79fc80b8715126fd466324d2be32074aefc7e4b9",
    "validation": "aa3991b773cf07135c19b10e2f49782cb9457a5a03fe595d47edda52097f791d",
    "test": "e9c8f5bc3130fc7e5678138a125cf4daffb529c94252e14d1d8f35b2523cf822",
}


def loaded(root: Path) -> Source:
    return load_gsm8k(LoadRequest(root, check_rows=False))


def test_the_card_asks_for_a_chain_of_thought_and_embeds_its_end() -> None:
    assert DATASETS.get("gsm8k") is CARD
    assert (CARD.prompt, CARD.max_tokens, CARD.stop) == ("chain-of-thought", 512, ())
    assert CARD.embed == "final_answer" and CARD.prompt in PROMPT_FORMS


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


def test_the_split_is_pinned(tmp_path: Path) -> None:
    split = split_questions(loaded(write_gsm8k(tmp_path)), n_train=10, n_test=5, seed=0)
    assert split.ids_sha256 == IDS


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


def test_another_number_of_rows_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="train has 12 rows, expected 7473"):
        load_gsm8k(LoadRequest(write_gsm8k(tmp_path)))


def test_the_expected_number_of_rows_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gsm8k, "CARD", replace(gsm8k.CARD, pools={"train": 12, "test": 8}))
    assert load_gsm8k(LoadRequest(write_gsm8k(tmp_path), "abc")).revision == "abc"


def test_a_missing_column_is_named_with_those_found(tmp_path: Path) -> None:
    file = write_gsm8k(tmp_path) / "main" / "test-00000-of-00001.parquet"
    pq.write_table(pa.table({"question": ["How many?"], "solution": ["7"]}), file)
    with pytest.raises(
        DataError, match=r"no column answer. Expected answer, question; found question, solution"
    ):
        loaded(tmp_path)


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    file = write_gsm8k(tmp_path) / "main" / "test-00000-of-00001.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        loaded(tmp_path)


def test_an_option_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown option 'embed'"):
        load_gsm8k(LoadRequest(tmp_path, options={"embed": "full"}))
