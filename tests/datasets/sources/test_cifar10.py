"""CIFAR-10 from its two layouts; what is malformed, missing or pickled is told."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sgpu.datasets.base import LoadRequest
from sgpu.datasets.sources.cifar10 import CARD, load_cifar10
from sgpu.datasets.split import split_questions
from sgpu.errors import DataError
from tests.datasets.class_fixtures import (
    CIFAR_NAMES,
    cifar10_rows,
    image_bytes,
    write_cifar10,
    write_cifar10_binary,
    write_labelled,
)
from tests.datasets.loading import loader

loaded = loader(load_cifar10)


def test_the_card_has_the_classes() -> None:
    assert CARD.classes == tuple(CIFAR_NAMES)


def test_parquet_rows_become_questions_of_both_pools(tmp_path: Path) -> None:
    source = loaded(write_cifar10(tmp_path))
    assert {pool: len(questions) for pool, questions in source.pools.items()} == {"train": 60, "test": 40}
    question = source.pools["train"][11]
    assert question.question_id == "train:11" and question.group == "train:11"
    assert question.text == "What is the main object in this image?"
    assert question.stratum == "automobile" and question.references[:2] == ("automobile", "car")
    assert question.all_answers == ("automobile",)
    assert question.image is not None and question.image.read() == image_bytes(11)
    assert source.rejected == ()


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_the_binary_version_is_read_in_place(tmp_path: Path, packed: bool) -> None:
    source = loaded(write_cifar10_binary(tmp_path, packed=packed))
    assert [len(source.pools[pool]) for pool in ("train", "test")] == [60, 12]
    question = source.pools["train"][12 + 3]
    assert question.question_id == "train:15" and question.stratum == "cat"
    assert question.image is not None
    picture = Image.open(io.BytesIO(question.image.read()))
    # The fourth record of the second batch: red rises along the first row and is 20 + 3 below it.
    assert picture.size == (32, 32) and picture.mode == "RGB"
    assert picture.getpixel((5, 0)) == (5, 7, 200)
    assert picture.getpixel((5, 1)) == picture.getpixel((31, 31)) == (23, 7, 200)
    assert "batches 1 to 5" in source.notes[0]


def test_images_of_one_batch_are_ordered_by_their_record(tmp_path: Path) -> None:
    images = [q.image for q in loaded(write_cifar10_binary(tmp_path, packed=True)).pools["train"]]
    orders = [image.order for image in images if image]
    assert orders == sorted(orders) and len(set(orders)) == 60


def test_both_layouts_give_the_same_split(tmp_path: Path) -> None:
    hub = loaded(write_cifar10(tmp_path / "hub", 60, 12))
    raw = loaded(write_cifar10_binary(tmp_path / "raw"))
    splits = [split_questions(source, 20, 10, 0).granted for source in (hub, raw)]
    assert splits[0] == splits[1]


def test_each_class_has_an_equal_count_on_each_side(tmp_path: Path) -> None:
    split = split_questions(loaded(write_cifar10(tmp_path, 120)), n_train=100, n_test=20, seed=0)
    counts = Counter((row.split, row.question.stratum) for row in split.rows)
    assert counts == {
        (side, name): n for side, n in (("train", 9), ("validation", 1), ("test", 2)) for name in CIFAR_NAMES
    }


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"img": {"bytes": b"x"}, "label": 10}, "label is 10, outside 0 to 9"),
        ({"img": {"bytes": b"x"}, "label": -1}, "label is -1, outside 0 to 9"),
        ({"img": {"bytes": b"x"}, "label": None}, "label is None, not a whole number"),
        ({"img": {"bytes": None}, "label": 1}, "img holds no image bytes"),
        ({"img": None, "label": 1}, "img holds no image bytes"),
    ],
)
def test_a_malformed_row_is_rejected_and_the_others_go_on(
    tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    write_cifar10(tmp_path)
    file = tmp_path / "plain_text" / "train-00000-of-00001.parquet"
    rows = cifar10_rows(5)
    rows[2] = row
    write_labelled(file, rows, "img", CIFAR_NAMES)
    source = loaded(tmp_path)
    assert [q.question_id for q in source.pools["train"]] == ["train:0", "train:1", "train:3", "train:4"]
    (rejected,) = source.rejected
    assert (rejected.file, rejected.row) == (str(file), "row 2")
    assert reason in rejected.reason and rejected.remedy


def test_a_record_with_a_label_out_of_range_is_rejected(tmp_path: Path) -> None:
    write_cifar10_binary(tmp_path)
    batch = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    content = bytearray(batch.read_bytes())
    content[4 * 3073] = 77
    batch.write_bytes(content)
    (rejected,) = loaded(tmp_path).rejected
    assert (rejected.file, rejected.row) == (str(batch), "record 4")
    assert "label is 77, outside 0 to 9" in rejected.reason


def test_labels_that_mean_other_classes_are_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    file = tmp_path / "plain_text" / "train-00000-of-00001.parquet"
    write_labelled(file, cifar10_rows(5), "img", sorted(CIFAR_NAMES, reverse=True))
    with pytest.raises(DataError, match=r"its labels are truck, ship, .*expected airplane, automobile"):
        loaded(tmp_path)


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "data_batch_1", "batches.meta"])
def test_the_pickled_version_is_refused_unopened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    with pytest.raises(DataError, match=r"is pickled.*cifar-10-binary\.tar\.gz"):
        loaded(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    write_cifar10_binary(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    with pytest.raises(DataError, match=r"nor all batches: data_batch_4\.bin absent\. Found"):
        loaded(tmp_path)


def test_a_batch_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    write_cifar10_binary(tmp_path)
    batch = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    batch.write_bytes(batch.read_bytes()[:-1])
    with pytest.raises(DataError, match="36875 bytes, not a multiple of 3073"):
        loaded(tmp_path)


def test_a_folder_without_either_layout_says_what_to_put_there(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match=r"Found: notes\.txt\. Put cifar-10-binary\.tar\.gz"):
        loaded(tmp_path)
    with pytest.raises(DataError, match="needs `path`"):
        load_cifar10(LoadRequest())
