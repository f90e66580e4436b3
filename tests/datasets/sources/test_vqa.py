"""References from ten annotators: what counts as one answer, and which answers have enough support."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sgpu.datasets.base import LoadRequest, Question, RejectedRow
from sgpu.datasets.image_files import FileImage
from sgpu.datasets.own_questions import PARQUET
from sgpu.datasets.source_rows import DatasetRow, SourceReading, read_options
from sgpu.datasets.sources.vqa import (
    AnnotatorOptions,
    Folder,
    Images,
    JsonFile,
    annotated,
    coco_names,
    normalised,
    read_pair,
    references,
    support,
)
from sgpu.errors import DataError, UsageError
from tests.datasets.vqa_fixtures import png, vqa_answers, write_images, write_json

SUPPORT = AnnotatorOptions()


def row(question_id: Any = "q1", text: Any = "What?", answers: Any = ("cup",), **fields: Any) -> DatasetRow:
    given = list(answers) if isinstance(answers, tuple) else answers
    values = {"question_id": question_id, "question": text, "answers": given, "image_name": "x.jpg"}
    return DatasetRow(Path("f.json"), "entry 0", {**values, "image": FileImage(Path("x.jpg")), **fields})


def pair_rows(*files: JsonFile, images: Images) -> list[DatasetRow]:
    return list(read_pair(SourceReading(PARQUET, LoadRequest()), "all", files, images))


def checked(rows: Iterable[DatasetRow]) -> tuple[list[Question], list[RejectedRow]]:
    reading = SourceReading(PARQUET, LoadRequest())
    return annotated(reading, rows, SUPPORT), reading.rejected


def rejection(bad: DatasetRow) -> RejectedRow:
    questions, rejected_rows = checked([bad, row("good")])
    assert [question.question_id for question in questions] == ["good"]
    (rejected,) = rejected_rows
    return rejected


# Expected values by the published rules of the VQA evaluation (visualqa.org, "Evaluation"), worked by hand.
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Red", "red"),
        (" a  red\ncup ", "red cup"),
        ("The U.S.", "us"),
        ("3.5", "3.5"),
        ("1,000", "1000"),
        ("red, white", "red white"),
        ("black/white", "black white"),
        ("t-shirt", "t shirt"),
        ("Two dogs!", "2 dogs"),
        ("none", "0"),
        ("ten", "10"),
        ("dont know", "don't know"),
        ("don’t know", "don't know"),
        ("it's", "it's"),
        ("well", "well"),
        ("7:30", "7:30"),
    ],
)
def test_answers_are_compared_without_case_punctuation_and_articles(answer: str, expected: str) -> None:
    assert normalised(answer) == expected


@pytest.mark.parametrize("answer", ["A", "the", "?"])
def test_an_answer_of_which_nothing_would_be_left_stays(answer: str) -> None:
    assert normalised(answer) == answer.lower()


def test_support_counts_spellings_of_one_answer_together() -> None:
    assert support(["Two", "2", "two", "three", ""]) == {"2": 3, "3": 1}


def test_references_are_the_answers_that_vqa_accuracy_calls_fully_right() -> None:
    ten = ["red"] * 5 + ["blue"] * 3 + ["green"] * 2
    # VQA accuracy (Antol et al. 2015, section 3): min(annotators who gave it / 3, 1).
    fully_right = {answer for answer in ten if min(ten.count(answer) / 3, 1) == 1}
    assert set(references(ten, SUPPORT)) == fully_right == {"red", "blue"}


def test_references_stand_by_support_and_then_by_text() -> None:
    assert references(["b"] * 3 + ["c"] * 4 + ["ab"] * 3, SUPPORT) == ("c", "ab", "b")


def test_without_enough_support_the_most_frequent_answer_is_the_reference() -> None:
    ten = ["d", "c", "b", "c", "b", "e", "f", "g", "h", "i"]
    assert references(ten, SUPPORT) == ("b",)


def test_a_reference_has_the_spelling_that_most_annotators_used() -> None:
    assert references(["None", "none", "none ", "0"], SUPPORT) == ("none",)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"refs": "consensus"}, ("red",)),
        ({"refs": "all"}, ("red", "blue", "green")),
        ({"min_support": 2}, ("red", "blue", "green")),
        ({"min_support": 5}, ("red",)),
    ],
)
def test_options_choose_the_references(options: dict[str, Any], expected: tuple[str, ...]) -> None:
    settings = read_options("vizwiz", AnnotatorOptions, options)
    assert references(["red"] * 5 + ["blue"] * 3 + ["green"] * 2, settings) == expected


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"min_suport": 2}, "Did you mean 'min_support'"),
        ({"refs": "some"}, "refs: Input should be 'support', 'consensus' or 'all'"),
        ({"min_support": 0}, "min_support: Input should be greater than or equal to 1"),
        ({"min_support": 11}, "min_support: Input should be less than or equal to 10"),
    ],
)
def test_an_unknown_or_invalid_option_is_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_options("vizwiz", AnnotatorOptions, options)


def test_a_question_keeps_the_ten_answers_and_their_counts() -> None:
    ten = ("Red", "red", "a red", "blue", "blue", "blue", "dark", "dark", "light", "?")
    (question,) = checked([row(answers=ten)])[0]
    assert question.all_answers == ten
    assert question.meta["answer_counts"] == {"blue": 3, "red": 3, "dark": 2, "?": 1, "light": 1}


def test_an_unanswerable_consensus_is_a_reference_and_is_flagged() -> None:
    ten = ("unanswerable",) * 6 + ("unsuitable",) * 2 + ("cup",) * 2
    (question,) = checked([row(answers=ten)])[0]
    assert question.references == ("unanswerable",)
    assert question.meta["unanswerable"] is True
    assert question.meta["n_unanswerable"] == 8


def test_answers_may_be_mappings_with_other_fields() -> None:
    answers = [{"answer": "horse", "raw_answer": "a horse", "answer_id": i} for i in range(3)]
    (question,) = checked([row(answers=answers)])[0]
    assert question.references == ("a horse",)
    assert question.all_answers == ("a horse",) * 3


def test_a_blank_answer_is_kept_but_supports_nothing() -> None:
    (question,) = checked([row(answers=("", "", "", "cup"))])[0]
    assert question.references == ("cup",)
    assert question.all_answers == ("", "", "", "cup")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(text=""), "question is blank"),
        (row(text=None), "question is None, not text"),
        (row(text=["What?"]), "not text"),
        (row(answers=None), "there are no answers"),
        (row(answers=()), "there are no answers"),
        (row(answers="cup"), "not a list"),
        (row(answers=("cup", 7)), "answer 1 is 7, not text"),
        (row(answers=({"answer_id": 1},)), "answer 0 is None, not text"),
        (row(answers=("", " ")), "all answers are blank"),
        (row(answers=("\ud83d",)), "surrogate"),
        (row(question_id=None), "question_id is None"),
        (row(question_id=True), "question_id is True"),
        (row(question_id=1.5), "question_id is 1.5"),
        (row(image=None), "image x.jpg is absent"),
    ],
)
def test_a_malformed_row_is_rejected_with_its_reason_and_the_others_go_on(
    bad: DatasetRow, reason: str
) -> None:
    rejected = rejection(bad)
    assert reason in rejected.reason
    assert (rejected.file, rejected.row) == ("f.json", "entry 0")
    assert rejected.remedy


def test_of_two_rows_with_one_id_the_first_stays() -> None:
    questions, rejected_rows = checked([row(7, "First?"), row("7", "Second?")])
    assert [question.text for question in questions] == ["First?"]
    assert "already used by f.json, entry 0" in rejected_rows[0].reason


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
    questions, rejected_rows = checked(pair_rows(q, a, images=Folder(folder).images("val2017")))
    return [found.question_id for found in questions], rejected_rows


@pytest.mark.parametrize(
    ("questions", "annotations", "file", "row", "reason"),
    [
        ([question(2)], [], "q.json", "question_id 2", "it has no annotation in"),
        ([], [annotation(2)], "a.json", "question_id 2", "a question that is not in"),
        ([], [annotation(1)], "a.json", "question_id 1", "annotated a second time"),
        ([question(1)], [], "q.json", "question_id 1", "was already used by"),
        ([{"question": "What?"}], [], "q.json", "entry 1", "question_id is None"),
        (["What?"], [], "q.json", "entry 1", "it is 'What?', not a mapping"),
        ([], [[]], "a.json", "entry 1", "it is [], not a mapping"),
        ([question(2, image_id=None)], [annotation(2)], "q.json", "question_id 2", "image_id is None"),
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
    (row,) = pair_rows(q, a, images={})
    assert (row.values["group"], row.values["meta"]) == ("9", {"image_id": "9", "answer_type": "other"})
