"""OK-VQA: the Hub's Parquet files and the authors' files are one data set."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpu.datasets.sources.ok_vqa import CARD, load_ok_vqa
from sgpu.errors import DataError
from tests.datasets.loading import loader
from tests.datasets.vqa_fixtures import png, ten_answers, write_hub, write_ok_vqa

loaded = loader(load_ok_vqa)

LAYOUTS: list[dict[str, Any]] = [{}, {"layout": "raw"}, {"layout": "raw", "zipped": True}]


def write_train(folder: Path, images: list[Any] | None = None, **columns: list[Any]) -> Path:
    """The Hub layout with another train file of two rows."""
    write_ok_vqa(folder)
    shutil.rmtree(folder / "train")
    given = {"question_id": [1, 2], "question": ["A?", "B?"], "answers": [["cup"] * 10] * 2} | columns
    write_hub(folder / "train" / "train-0.parquet", given, images or [png(1), png(2)])
    return folder


@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_pools_are_read_in_every_layout(tmp_path: Path, layout: dict[str, Any]) -> None:
    source = loaded(write_ok_vqa(tmp_path, **layout))
    assert {pool: len(found) for pool, found in source.pools.items()} == {"train": 24, "test": 12}
    assert source.rejected == ()
    train, test = source.pools["train"][0], source.pools["test"][3]
    assert (train.question_id, train.text) == ("100000", "What is it (0)?")
    assert train.references == ("a red", "a blue")
    # The Hub's test files have no raw answers.
    said = [f"a {text}" for text in ten_answers(3)] if layout else ten_answers(3)
    assert (test.question_id, test.all_answers) == ("500003000", tuple(said))
    assert train.image is not None and train.image.read() == png(100)
    assert test.image is not None and test.image.read() == png(500_003)


def test_a_pool_may_come_from_the_hub_and_the_other_from_raw_files(tmp_path: Path) -> None:
    write_ok_vqa(tmp_path, layout="raw")
    for file in tmp_path.glob("*val2014*.json"):
        file.unlink()
    write_ok_vqa(tmp_path / "hub")
    shutil.move(tmp_path / "hub" / "test", tmp_path / "test")
    shutil.rmtree(tmp_path / "hub")
    source = loaded(tmp_path)
    assert (len(source.pools["train"]), len(source.pools["test"])) == (24, 12)


def test_the_authors_answers_go_before_a_list_of_the_mirror(tmp_path: Path) -> None:
    original = [[{"answer": "horse", "raw_answer": "a horse"}] * 10] * 2
    write_train(tmp_path, answers=[["pony"]] * 2, answers_original=original)
    assert loaded(tmp_path).pools["train"][0].all_answers == ("a horse",) * 10


def test_the_answer_stands_for_a_raw_answer_that_is_absent(tmp_path: Path) -> None:
    answers = [[{"answer": "race", "raw_answer": raw} for raw in ["racing"] * 9 + [None]]] * 2
    write_train(tmp_path, answers=answers)
    first = loaded(tmp_path).pools["train"][0]
    assert (first.all_answers, first.references) == (("racing",) * 9 + ("race",), ("racing",))


@pytest.mark.parametrize(
    ("columns", "images", "reason"),
    [
        ({"question": ["A?", None]}, None, "question is None"),
        ({"question_id": [1, None]}, None, "question_id is None"),
        ({"question_id": [1, 1]}, None, "was already used by"),
        ({"answers": [["cup"], None]}, None, "there are no answers"),
        ({"answers": [["cup"], [None]]}, None, "answer 0 is None"),
        ({"answers": [["cup"], [""]]}, None, "all answers are blank"),
        ({}, [png(1), None], "image of row 1 is absent"),
        ({}, [png(1), b""], "image of row 1 is absent"),
    ],
)
def test_a_malformed_row_is_rejected_and_the_others_go_on(
    tmp_path: Path, columns: dict[str, Any], images: list[Any] | None, reason: str
) -> None:
    source = loaded(write_train(tmp_path, images, **columns))
    assert [q.question_id for q in source.pools["train"]] == ["1"]
    (rejected,) = source.rejected
    assert Path(rejected.file).name == "train-0.parquet" and rejected.row == "row 1"
    assert reason in rejected.reason and rejected.remedy


def test_answers_that_are_no_list_are_rejected(tmp_path: Path) -> None:
    source = loaded(write_train(tmp_path, answers=["cup", "dog"]))
    assert [row.reason for row in source.rejected] == [
        "answers is 'cup', not a list",
        "answers is 'dog', not a list",
    ]


def test_a_pool_that_is_nowhere_is_named_with_what_to_download(tmp_path: Path) -> None:
    write_ok_vqa(tmp_path)
    shutil.rmtree(tmp_path / "test")
    with pytest.raises(
        DataError, match=r"OpenEnded_mscoco_val2014_questions\.json\. Found: train/\. From https://okvqa"
    ):
        loaded(tmp_path)


def test_image_bytes_are_not_read_to_know_that_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ok_vqa(tmp_path)
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda *_, **__: pytest.fail("images were read"))
    assert len(loaded(tmp_path).pools["train"]) == 24


def test_the_card_names_a_folder_for_each_mirror_and_the_papers_numbers() -> None:
    assert [files.folder for files in CARD.hub] == ["train", "test"]
    assert (CARD.pools, CARD.paper) == ({"train": 9_009, "test": 5_046}, (9_000, 5_000))


def test_a_plain_binary_column_of_images_is_read(tmp_path: Path) -> None:
    write_ok_vqa(tmp_path)
    file = next((tmp_path / "test").rglob("*.parquet"))
    table = pq.read_table(file).drop_columns(["image"])
    pq.write_table(table.append_column("image", pa.array([png(7)] * table.num_rows)), file)
    image = loaded(tmp_path).pools["test"][0].image
    assert image is not None and image.read() == png(7)
