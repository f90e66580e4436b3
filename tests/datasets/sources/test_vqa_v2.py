"""Raw folders and VQA v2 files: what is found in them, and which of their entries are told as unusable."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sgpu.datasets.base import RejectedRow
from sgpu.datasets.sources.annotators import AnnotatedRow, AnnotatorSettings, check_rows
from sgpu.datasets.sources.vqa_v2 import Folder, JsonFile, Pair, coco_names
from sgpu.errors import DataError
from tests.datasets.vqa_fixtures import png, vqa_answers, write_images, write_json

TEN = vqa_answers(["cup"] * 10)


def question(number: Any, **fields: Any) -> dict[str, Any]:
    return {"question_id": number, "image_id": 1, "question": "What?", **fields}


def annotation(number: Any, **fields: Any) -> dict[str, Any]:
    return {"question_id": number, "answers": TEN, **fields}


def read(folder: Path, questions: list[Any], annotations: list[Any]) -> tuple[list[str], list[RejectedRow]]:
    """Ids of the good questions and what was rejected, with image 1 there and no other."""
    q = JsonFile(write_json(folder / "q.json", {"questions": questions}))
    a = JsonFile(write_json(folder / "a.json", {"annotations": annotations}))
    write_images(folder, "val2017", {"000000000001.jpg": png(1)})
    rows = Pair.read("all", q, a).rows(coco_names, Folder(folder).images("val2017"))
    checked = check_rows(rows, AnnotatorSettings(), ["all"])
    return [found.question_id for found in checked.pools["all"]], checked.rejected


@pytest.mark.parametrize(
    ("questions", "annotations", "file", "row", "reason"),
    [
        ([question(2)], [], "q.json", "entry 1", "question 2 has no annotation in"),
        ([], [annotation(2)], "a.json", "question_id 2", "a question that is not in"),
        ([], [annotation(1)], "a.json", "entry 1", "question 1 is annotated a second time"),
        ([question(1)], [], "q.json", "question_id 1", "is already that of"),
        ([{"question": "What?"}], [], "q.json", "entry 1", "question_id is None"),
        (["What?"], [], "q.json", "entry 1", "it is 'What?', not a mapping"),
        ([], [[]], "a.json", "entry 1", "it is [], not a mapping"),
        ([question(2, image_id=None)], [annotation(2)], "q.json", "entry 1", "image_id is None"),
        ([question(2, image_id=3)], [annotation(2)], "q.json", "question_id 2", "000000000003.jpg"),
        ([question(2, question=" ")], [annotation(2)], "q.json", "question_id 2", "question is blank"),
        ([question(2)], [annotation(2, answers=[])], "q.json", "question_id 2", "there are no answers"),
    ],
)
def test_an_unusable_entry_is_rejected_and_the_others_go_on(
    tmp_path: Path, questions: list[Any], annotations: list[Any], file: str, row: str, reason: str
) -> None:
    good, rejected = read(tmp_path, [question(1), *questions], [annotation(1), *annotations])
    assert good == ["1"]
    (only,) = rejected
    assert (Path(only.file).name, only.row) == (file, row)
    assert reason in only.reason and only.remedy


@pytest.mark.parametrize(
    ("image_id", "name"),
    [
        ("139", "000000000139.jpg"),
        ("139", "COCO_val2014_000000000139.jpg"),
        ("139", "COCO_train2014_000000000139.jpg"),
        ("a/b.png", "b.png"),
        ("b", "b.jpg"),
    ],
)
def test_an_image_id_stands_for_the_names_of_coco_or_for_itself(image_id: str, name: str) -> None:
    assert name in coco_names(image_id)


@pytest.mark.parametrize("content", ["{", "[1, 2", "\udcff"])
def test_a_file_that_is_not_json_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "q.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=r"q\.json is not JSON"):
        JsonFile(tmp_path / "q.json").entries("questions")


@pytest.mark.parametrize("content", [[], {}, {"questions": {}}, 7])
def test_a_file_without_its_list_is_named(tmp_path: Path, content: object) -> None:
    file = write_json(tmp_path / "q.json", content)
    with pytest.raises(DataError, match=r"q\.json holds no list under 'questions'"):
        JsonFile(file).entries("questions")


def test_json_is_found_deep_in_the_folder_and_inside_archives(tmp_path: Path) -> None:
    write_json(tmp_path / "x" / "y" / "plain.json", [1])
    write_json(tmp_path / "x" / "zipped.json", [2], zipped=True)
    with zipfile.ZipFile(tmp_path / "Annotations.zip", "w") as archive:
        archive.writestr("Annotations/train.json", json.dumps([3]))
    folder = Folder(tmp_path)
    found = [
        folder.json(name, "Annotations.zip")
        for name in ("plain.json", "zipped.json", "train.json", "no.json")
    ]
    assert [file and file.read() for file in found] == [[1], [2], [3], None]


def test_the_least_deep_of_two_files_with_one_name_is_taken(tmp_path: Path) -> None:
    write_json(tmp_path / "a" / "b" / "q.json", ["deep"])
    write_json(tmp_path / "z" / "q.json", ["less deep"])
    found = Folder(tmp_path).json("q.json")
    assert found is not None and found.read() == ["less deep"]


def test_images_come_from_folders_and_named_archives_only(tmp_path: Path) -> None:
    write_images(tmp_path, "val2017", {"loose.jpg": png(1)})
    write_images(tmp_path, "train", {"member.jpg": png(2)}, zipped=True)
    write_images(tmp_path, "other", {"stranger.jpg": png(3)}, zipped=True)
    assert set(Folder(tmp_path).images("train")) == {"loose.jpg", "member.jpg"}
    assert Folder(tmp_path).images("train")["member.jpg"].read() == png(2)


def test_a_folder_without_an_image_is_named_with_what_to_put_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no images\. Put val2017\.zip or val2014\.zip there"):
        Folder(tmp_path).images("val2017", "val2014")


def test_a_linked_image_folder_is_followed_and_a_circle_ends(tmp_path: Path) -> None:
    write_images(tmp_path / "elsewhere", "val2017", {"1.jpg": png(1)})
    root = tmp_path / "root"
    root.mkdir()
    (root / "val2017").symlink_to(tmp_path / "elsewhere" / "val2017")
    (root / "self").symlink_to(root)
    assert set(Folder(root).images("val2017")) == {"1.jpg"}


def test_a_row_names_its_image_in_group_and_meta(tmp_path: Path) -> None:
    q = JsonFile(write_json(tmp_path / "q.json", {"questions": [question(5, image_id=9)]}))
    a = JsonFile(write_json(tmp_path / "a.json", {"annotations": [annotation(5, answer_type="other")]}))
    (row,) = Pair.read("all", q, a).rows(coco_names, {})
    assert isinstance(row, AnnotatedRow)
    assert (row.group, row.meta) == ("9", {"image_id": "9", "answer_type": "other"})
