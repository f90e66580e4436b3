"""Imagenette from folders, archives and Parquet files: one set of ids, told apart by size."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sgpu.datasets.sources.imagenette import CARD, load_imagenette
from sgpu.datasets.split import split_questions
from sgpu.errors import DataError
from tests.datasets.class_fixtures import (
    IMAGENETTE_NAMES,
    WNIDS,
    image_bytes,
    imagenette_files,
    write_imagenette,
    write_imagenette_hub,
    write_labelled,
)
from tests.datasets.loading import loader

loaded = loader(load_imagenette)


def written(layout: str, folder: Path) -> Path:
    if layout == "hub":
        return write_imagenette_hub(folder)
    return write_imagenette(folder, packed=layout == "archive")


LAYOUTS = ["folders", "archive", "hub"]


def test_the_card_has_the_classes() -> None:
    assert CARD.classes == tuple(IMAGENETTE_NAMES)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_questions(tmp_path: Path, layout: str) -> None:
    source = loaded(written(layout, tmp_path))
    assert {pool: len(questions) for pool, questions in source.pools.items()} == {"train": 60, "test": 40}
    by_id = {q.question_id: q for q in source.pools["test"]}
    question = by_id["n03394916_502.JPEG"]
    assert question.stratum == "French horn" and question.references[0] == "French horn"
    expected = imagenette_files(6, 4)["val/n03394916/n03394916_502.JPEG"]
    assert question.image is not None and question.image.read() == expected
    assert source.rejected == () and source.notes == ()


def test_each_class_has_an_equal_count_on_each_side(tmp_path: Path) -> None:
    split = split_questions(loaded(write_imagenette(tmp_path)), n_train=40, n_test=20, seed=0)
    sides = Counter((row.split == "test", row.question.stratum) for row in split.rows)
    assert sides == {
        (is_test, name): n for is_test, n in ((False, 4), (True, 2)) for name in IMAGENETTE_NAMES
    }


def test_the_unpacked_folder_itself_may_be_given(tmp_path: Path) -> None:
    assert len(loaded(write_imagenette(tmp_path) / "imagenette2-320").pools["train"]) == 60


def test_size_chooses_among_several(tmp_path: Path) -> None:
    write_imagenette(tmp_path, 3, 1)
    write_imagenette(tmp_path, 2, 1, packed=True, size="-160")
    write_imagenette_hub(tmp_path, 5, 1, size="full_size")
    sizes = {
        size: len(loaded(tmp_path, size=size).pools["train"]) for size in ("320px", "160px", "full_size")
    }
    assert sizes == {"320px": 30, "160px": 20, "full_size": 50}


@pytest.mark.parametrize("below", ["", "imagenette2-320"])
def test_a_size_that_is_not_there_is_not_replaced_by_another(tmp_path: Path, below: str) -> None:
    root = write_imagenette(tmp_path) / below
    with pytest.raises(DataError, match=r"neither imagenette2-160\.tgz, nor the folders"):
        loaded(root, size="160px")


def test_a_size_of_the_hub_is_not_replaced_by_another(tmp_path: Path) -> None:
    write_imagenette_hub(tmp_path, size="320px")
    with pytest.raises(DataError, match="nor Parquet files of full_size"):
        loaded(tmp_path, size="full_size")


def test_without_image_names_ids_are_row_numbers_and_a_note_says_so(tmp_path: Path) -> None:
    source = loaded(write_imagenette_hub(tmp_path, named=False))
    assert source.pools["test"][7].question_id == "test:7"
    assert "ids are row numbers" in source.notes[0]


def test_broad_accepts_wider_terms(tmp_path: Path) -> None:
    root = write_imagenette(tmp_path)
    narrow, broad = (loaded(root, broad=broad).pools["train"][0].references for broad in (False, True))
    assert "fish" not in narrow and broad == (*narrow, "fish")


def test_an_image_of_a_folder_that_is_no_class_is_rejected(tmp_path: Path) -> None:
    folder = write_imagenette(tmp_path) / "imagenette2-320" / "train" / "n00000001"
    folder.mkdir()
    (folder / "n00000001_1.JPEG").write_bytes(image_bytes(1))
    source = loaded(tmp_path)
    (rejected,) = source.rejected
    assert rejected.row == "train/n00000001/n00000001_1.JPEG"
    assert "'n00000001' is none of the 10 classes" in rejected.reason and WNIDS[0] in rejected.remedy
    assert len(source.pools["train"]) == 60


def test_a_file_name_in_both_pools_is_rejected_the_second_time(tmp_path: Path) -> None:
    top = write_imagenette(tmp_path) / "imagenette2-320"
    (top / "val" / WNIDS[0] / f"{WNIDS[0]}_0.JPEG").write_bytes(image_bytes(1))
    (rejected,) = loaded(tmp_path).rejected
    assert rejected.row.startswith("val/") and "already used by" in rejected.reason


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"image": {"bytes": b"x", "path": "a.JPEG"}, "label": 12}, "label is 12, outside 0 to 9"),
        ({"image": {"bytes": None, "path": "a.JPEG"}, "label": 1}, "image holds no image bytes"),
    ],
)
def test_a_malformed_parquet_row_is_rejected(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    file = write_imagenette_hub(tmp_path) / "320px" / "train" / "0000.parquet"
    good = {"image": {"bytes": image_bytes(3), "path": "b.JPEG"}, "label": 3}
    write_labelled(file, [row, good], "image", None)
    source = loaded(tmp_path)
    assert [q.question_id for q in source.pools["train"]] == ["b.JPEG"]
    assert [(r.file, r.row) for r in source.rejected] == [(str(file), "row 0")]
    assert reason in source.rejected[0].reason


def test_labels_that_mean_other_classes_are_refused(tmp_path: Path) -> None:
    file = write_imagenette_hub(tmp_path) / "320px" / "train" / "0000.parquet"
    write_labelled(file, [], "image", IMAGENETTE_NAMES[::-1])
    with pytest.raises(DataError, match=r"its labels are parachute, .*expected tench"):
        loaded(tmp_path)


def test_an_empty_folder_says_what_to_put_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Found: nothing\. Put imagenette2-320\.tgz"):
        loaded(tmp_path)
