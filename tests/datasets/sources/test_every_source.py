"""What every source with files promises: a card, a pinned split, counted rows, known options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sgpu.datasets.base import DATASETS, LoadRequest
from sgpu.datasets.split import split_questions
from sgpu.errors import DataError, UsageError
from sgpu.models.cards import PROMPT_FORMS
from tests.datasets.class_fixtures import write_cifar10, write_imagenette, write_imagenette_hub
from tests.datasets.text_fixtures import write_gsm8k, write_popqa, write_triviaqa
from tests.datasets.vqa_fixtures import write_advqa, write_ok_vqa, write_vizwiz, write_vqa_rad

Write = Callable[[Path], Path]
IMAGENETTE = "369b1376bf15e489 4520941d6682a836 52c47c46cfeb5213", "train has 60 rows, expected 9469"
OK_VQA = "850ed479dfc2ed14 - 482b231e7f04cede", "has 24 rows, expected 9009"
# (data set, its files, questions of train and test, ids of train, validation and test, number of rows)
CASES = [
    ("gsm8k", write_gsm8k, 10, 5, "d25fc80c733fda2f aa3991b773cf0713 e9c8f5bc3130fc7e",
     "train has 12 rows, expected 7473"),
    ("triviaqa", write_triviaqa, 10, 4, "870b3f06a6da02e3 db490213befdfb91 4d1b6c0be75503b7",
     "train has 15 rows, expected 138384"),
    ("popqa", write_popqa, 10, 6, "e66b294f3728d770 e3b0c44298fc1c14 0ed934e96c084ed8",
     r"test\.tsv has 20 rows, expected 14267"),
    ("cifar-10", write_cifar10, 30, 20, "d1eb999b8b865266 fe2a43f1f93eb0da 2f014dc2cf37638b",
     "train has 60 rows, expected 50000"),
    ("imagenette", write_imagenette, 30, 20, *IMAGENETTE),
    ("imagenette", partial(write_imagenette, packed=True), 30, 20, *IMAGENETTE),
    ("imagenette", write_imagenette_hub, 30, 20, *IMAGENETTE),
    ("ok-vqa", write_ok_vqa, 16, 4, *OK_VQA),
    ("ok-vqa", partial(write_ok_vqa, layout="raw"), 16, 4, *OK_VQA),
    ("ok-vqa", partial(write_ok_vqa, layout="raw", zipped=True), 16, 4, *OK_VQA),
    ("vqa-rad", write_vqa_rad, 16, 4, "2e463d66f9eec448 - 432a3438364beefb", "has 24 rows, expected 1793"),
    ("vizwiz", write_vizwiz, 16, 4, "9a006fdd8c117eb4 - b4589735c01fedf3", "has 24 rows, expected 20523"),
    ("vizwiz", partial(write_vizwiz, layout="hub"), 16, 4, "19e79b6a39eb79a3 - 6005aa73bc5d2bc6",
     "has 24 rows, expected 4319"),
    ("advqa", write_advqa, 16, 4, "79e109a6d994112b - fb004655105625d0", "has 24 rows, expected 10000"),
]  # fmt: skip


@pytest.mark.parametrize("name", sorted({name for name, *_ in CASES}))
def test_the_registry_has_the_card_and_the_card_a_prompt_form(name: str) -> None:
    card = DATASETS.get(name)
    assert card.name == name and card.prompt in PROMPT_FORMS


@pytest.mark.parametrize(("name", "write", "n_train", "n_test", "ids", "_"), CASES)
def test_the_split_is_the_same_everywhere_and_in_every_layout(
    tmp_path: Path, name: str, write: Write, n_train: int, n_test: int, ids: str, _: str
) -> None:
    source = DATASETS.get(name).load(LoadRequest(write(tmp_path), check_rows=False))
    found = split_questions(source, n_train, n_test, seed=0).ids_sha256
    for side, start in zip(("train", "validation", "test"), ids.split(), strict=True):
        assert found[side].startswith(start.strip("-")), side


@pytest.mark.parametrize(("name", "write", "message"), [(*case[:2], case[-1]) for case in CASES])
def test_another_number_of_rows_is_refused_with_both_numbers(
    tmp_path: Path, name: str, write: Write, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        DATASETS.get(name).load(LoadRequest(write(tmp_path)))


@pytest.mark.parametrize(
    ("name", "write", "pools"),
    [
        ("gsm8k", write_gsm8k, {"train": 12, "test": 8}),
        ("cifar-10", write_cifar10, {"train": 60, "test": 40}),
        ("imagenette", write_imagenette, {"train": 60, "test": 40}),
    ],
)
def test_the_expected_number_of_rows_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Write, pools: dict[str, int]
) -> None:
    card = DATASETS.get(name)
    monkeypatch.setattr(sys.modules[card.load.__module__], "CARD", replace(card, pools=pools))
    source = card.load(LoadRequest(write(tmp_path), "abc"))
    assert source.revision == "abc" and len(source.pools["test"]) == pools["test"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gsm8k", {"embed": "full"}, "unknown option 'embed'"),
        ("triviaqa", {"config": "rc"}, "unknown option 'config'"),
        ("popqa", {"split": "test"}, "unknown option 'split'"),
        ("cifar-10", {"broad": True}, "unknown option 'broad'"),
        ("imagenette", {"sise": "320px"}, "unknown option 'sise'. Did you mean 'size'"),
        ("imagenette", {"size": "200px"}, "size: Input"),
        ("ok-vqa", {"references": "all"}, "'references'.*refs"),
        ("vqa-rad", {"disjont": "image"}, "disjoint"),
        ("vizwiz", {"ref": "all"}, "'ref'.*'refs'"),
        ("advqa", {"source": "vqa"}, "source: Input should be 'sheng' or 'li'"),
    ],
)
def test_an_unknown_or_invalid_option_is_refused_by_name(
    tmp_path: Path, name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        DATASETS.get(name).load(LoadRequest(tmp_path, options=options))


VIZWIZ = partial(write_vizwiz, layout="hub")
VQA = "Expected answers, image, question, question_id; found"


@pytest.mark.parametrize(
    ("name", "write", "files", "column", "message"),
    [
        ("gsm8k", write_gsm8k, "test-*", "answer", "Expected answer, question; found question"),
        ("triviaqa", write_triviaqa, "train-*", "answer", "; found .*question"),
        ("cifar-10", write_cifar10, "test-*", "label", "Expected img, label; found img"),
        ("imagenette", write_imagenette_hub, "*", "image", "Expected image, label; found label"),
        ("ok-vqa", write_ok_vqa, "*", "answers", VQA),
        ("ok-vqa", write_ok_vqa, "*", "image", ""),
        ("vqa-rad", write_vqa_rad, "train-*", "answer", "Expected answer.*; found .*question"),
        ("vizwiz", VIZWIZ, "val-*", "question", VQA),
    ],
)
def test_a_missing_column_is_named_with_those_expected_and_found(
    tmp_path: Path, name: str, write: Write, files: str, column: str, message: str
) -> None:
    file = next(write(tmp_path).rglob(f"{files}.parquet"))
    pq.write_table(pq.read_table(file).drop_columns([column]), file)
    with pytest.raises(DataError, match=f"no column {column}.*{message}"):
        DATASETS.get(name).load(LoadRequest(tmp_path, check_rows=False))


@pytest.mark.parametrize(("name", "write"), [("gsm8k", write_gsm8k), ("vqa-rad", write_vqa_rad)])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, name: str, write: Write) -> None:
    file = next(write(tmp_path).rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=f"{file.name} cannot be read as Parquet"):
        DATASETS.get(name).load(LoadRequest(tmp_path, check_rows=False))
