"""AdVQA: one pool of questions on COCO images, or the official splits of AVQA."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgpu.datasets.base import LoadRequest
from sgpu.datasets.sources.advqa import CARD, load_advqa
from sgpu.datasets.split import split_questions
from sgpu.errors import DataError
from tests.datasets.loading import loader
from tests.datasets.vqa_fixtures import png, vqa_pair, write_advqa, write_images, write_json

loaded = loader(load_advqa)


@pytest.mark.parametrize("zipped", [False, True])
def test_questions_are_read_from_files_or_archives(tmp_path: Path, zipped: bool) -> None:
    source = loaded(write_advqa(tmp_path, 8, zipped))
    first, second = source.pools["all"][:2]
    assert len(source.pools["all"]) == 8 and source.rejected == ()
    assert (first.question_id, first.text, first.references) == ("139000", "What is it (0)?", ("red", "blue"))
    assert first.group == second.group == "139"
    assert first.image is not None and first.image.read() == png(139)


def test_no_image_is_on_both_sides_of_the_split(tmp_path: Path) -> None:
    split = split_questions(loaded(write_advqa(tmp_path)), n_train=16, n_test=5, seed=0)
    groups = {side: {r.question.group for r in split.rows if r.split == side} for side in ("train", "test")}
    assert groups["train"].isdisjoint(groups["test"])


def test_images_of_coco_2014_serve_as_well(tmp_path: Path) -> None:
    write_advqa(tmp_path, 2)
    (tmp_path / "val2017" / "000000000139.jpg").unlink()
    write_images(tmp_path, "val2014", {"COCO_val2014_000000000139.jpg": png(9)})
    image = loaded(tmp_path).pools["all"][0].image
    assert image is not None and image.read() == png(9)


def test_yes_no_and_unanswerable_questions_are_kept_and_flagged(tmp_path: Path) -> None:
    source = loaded(write_advqa(tmp_path, 4))
    assert [q.meta["yes_no"] for q in source.pools["all"]] == [False, True, False, False]
    assert [q.meta["unanswerable"] for q in source.pools["all"]] == [False, False, True, False]
    assert "1 of 4 questions with the consensus yes or no, 1 that at least" in source.notes[-1]


def test_a_question_whose_image_is_absent_is_rejected(tmp_path: Path) -> None:
    write_advqa(tmp_path, 6)
    (tmp_path / "val2017" / "000000000140.jpg").unlink()
    source = loaded(tmp_path)
    assert [row.row for row in source.rejected] == ["question_id 140000", "question_id 140001"]
    assert "000000000140.jpg" in source.rejected[0].reason
    assert len(source.pools["all"]) == 4


@pytest.mark.parametrize(
    "kind", ["OpenEnded_mscoco_val2017_advqa_questions", "mscoco_val2017_advqa_annotations"]
)
def test_an_absent_file_is_named_with_its_address(tmp_path: Path, kind: str) -> None:
    write_advqa(tmp_path)
    (tmp_path / f"v1_{kind}.json").unlink()
    with pytest.raises(DataError, match=f"has no v1_{kind}.json. Found: v1_.*. Download https://dl.fbaip"):
        loaded(tmp_path)


def test_without_a_folder_the_person_is_told_what_to_download() -> None:
    with pytest.raises(DataError, match=r"needs `path`.*Download"):
        load_advqa(LoadRequest())


def write_li(folder: Path, *splits: str) -> Path:
    for number, split in enumerate(splits):
        questions, annotations = vqa_pair(4, first_image=100 * number + 1, per_image=1)
        write_json(folder / f"avqa_{split}_questions.json", questions)
        write_json(folder / f"avqa_{split}_annotations.json", annotations)
        write_images(folder, split, {f"{e['image_id']}.png": png(1) for e in questions["questions"]})
    return folder


def test_avqa_has_the_official_splits(tmp_path: Path) -> None:
    source = loaded(write_li(tmp_path, "train", "val", "test"), source="li")
    assert [q.question_id for q in source.pools["train"]] == ["1000", "2000", "3000", "4000"]
    assert [q.question_id for q in source.pools["test"]] == ["201000", "202000", "203000", "204000"]
    assert "Li, J. Lei" in source.citation and source.rejected == ()


def test_avqa_is_tested_on_val_where_test_has_no_annotations(tmp_path: Path) -> None:
    write_li(tmp_path, "train", "val", "test")
    (tmp_path / "avqa_test_annotations.json").unlink()
    source = loaded(tmp_path, source="li")
    assert source.pools["test"][0].question_id == "101000"
    assert "avqa_val_questions.json" in source.notes[0]


def test_avqa_without_train_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no questions and annotations of train"):
        loaded(write_li(tmp_path, "val"), source="li")


def test_two_files_of_one_split_of_avqa_are_refused(tmp_path: Path) -> None:
    write_li(tmp_path, "train", "test")
    write_json(tmp_path / "old_train_questions.json", json.loads("{}"))
    with pytest.raises(DataError, match=r"several files of train questions: avqa_train.*, old_train"):
        loaded(tmp_path, source="li")


def test_the_card_has_the_numbers_of_the_source_and_of_the_paper() -> None:
    assert (CARD.pools, CARD.paper) == ({"all": 10_000}, (6_000, 2_000))
