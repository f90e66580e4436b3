"""VQA-RAD: ids made of split and row, closed and open answers, images that stand in both splits."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from sgpu.datasets.sources.vqa_rad import CARD, load_vqa_rad
from sgpu.datasets.split import split_questions
from sgpu.errors import DataError
from tests.datasets.loading import loader
from tests.datasets.vqa_fixtures import png, write_hub, write_vqa_rad

loaded = loader(load_vqa_rad)


def write_train(folder: Path, question: list[Any], answer: list[Any], images: list[Any]) -> Path:
    write_vqa_rad(folder)
    (folder / "data" / "train-00000-of-00001-0123456789abcdef.parquet").unlink()
    write_hub(folder / "data" / "train-0.parquet", {"question": question, "answer": answer}, images)
    return folder


def test_questions_are_named_by_split_and_row(tmp_path: Path) -> None:
    source = loaded(write_vqa_rad(tmp_path))
    first = source.pools["train"][1]
    assert (first.question_id, first.text) == ("train:00001", "is there a finding in train 1?")
    assert first.references == first.all_answers == ("left lung",)
    assert first.image is not None and first.image.read() == png(0)
    assert source.pools["test"][-1].question_id == "test:00007"


def test_rows_are_counted_through_the_files_of_a_split(tmp_path: Path) -> None:
    write_vqa_rad(tmp_path, n_train=3)
    extra = {"question": ["one more?"], "answer": ["no"]}
    write_hub(tmp_path / "data" / "train-00001-of-00002.parquet", extra, [png(77)])
    last = loaded(tmp_path).pools["train"][-1]
    assert (last.question_id, last.text) == ("train:00003", "one more?")
    assert last.image is not None and last.image.read() == png(77)


def test_meta_has_the_kind_of_answer_and_the_hashes_of_image_and_text(tmp_path: Path) -> None:
    closed, opened, _ = loaded(write_vqa_rad(tmp_path)).pools["train"][:3]
    assert (closed.meta["kind"], opened.meta["kind"]) == ("closed", "open")
    assert closed.meta["image_sha256"] == hashlib.sha256(png(0)).hexdigest()
    text = b"is there a finding in train 0?\x1fYes"
    assert closed.meta["content_sha256"] == hashlib.sha256(text).hexdigest()


def test_the_share_of_test_images_in_train_is_told(tmp_path: Path) -> None:
    # The fixture's test images 1, 3, 5 and 7 are train images; 0, 2, 4 and 6 are not.
    (note,) = loaded(write_vqa_rad(tmp_path)).notes
    assert note.startswith("4 of 8 test images (50.0%) are also in train, with 4 of 8 test questions")


def test_the_official_splits_stay_whole(tmp_path: Path) -> None:
    split = split_questions(loaded(write_vqa_rad(tmp_path)), n_train=2000, n_test=500, seed=0)
    assert split.granted == {"train": 22, "validation": 2, "test": 8}


def test_disjoint_images_takes_test_images_out_of_train(tmp_path: Path) -> None:
    source = loaded(write_vqa_rad(tmp_path), disjoint="image")
    split = split_questions(source, n_train=2000, n_test=500, seed=0)
    images = {
        side: {r.question.meta["image_sha256"] for r in split.rows if (r.split == "test") == (side == "test")}
        for side in ("train", "test")
    }
    assert images["train"].isdisjoint(images["test"])
    assert split.granted["train"] + split.granted["validation"] == 12


@pytest.mark.parametrize(
    ("question", "answer", "image", "reason"),
    [
        (None, "yes", png(1), "question is None, not text"),
        (" ", "yes", png(1), "question is blank"),
        ("is it?", None, png(1), "answer is None, not text"),
        ("is it?", "", png(1), "answer is blank"),
        ("is it?", "yes", None, "holds no image bytes"),
        ("is it?", "yes", b"", "holds no image bytes"),
        ("is it?", "yes", {"bytes": None, "path": "x.jpg"}, "holds no image bytes"),
    ],
)
def test_a_malformed_row_is_rejected_and_moves_no_id(
    tmp_path: Path, question: Any, answer: Any, image: Any, reason: str
) -> None:
    write_train(tmp_path, ["is it 0?", question, "is it 2?"], ["no", answer, "no"], [png(0), image, png(2)])
    source = loaded(tmp_path)
    assert [q.question_id for q in source.pools["train"]] == ["train:00000", "train:00002"]
    (rejected,) = source.rejected
    assert Path(rejected.file).name == "train-0.parquet" and rejected.row == "row 1"
    assert reason in rejected.reason and rejected.remedy


def test_a_split_without_files_is_named(tmp_path: Path) -> None:
    write_vqa_rad(tmp_path)
    next(tmp_path.rglob("test-*.parquet")).unlink()
    with pytest.raises(DataError, match=r"no Parquet file of .*test.*flaviagiammarino/vqa-rad"):
        loaded(tmp_path)


def test_the_card_has_the_numbers_of_the_source_and_of_the_paper() -> None:
    assert (CARD.pools, CARD.paper) == ({"train": 1_793, "test": 451}, (2_000, 500))
