"""Easy-VQA as the package holds it, and what is told of files that are not as they should be."""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from easy_vqa_model.questions import CARD, load

from sgpu.datasets.base import LoadRequest, Source
from sgpu.datasets.split import split_questions
from sgpu.errors import DataError, MissingDependencyError, UsageError
from sgpu.models.cards import PROMPT_FORMS
from tests.datasets.class_fixtures import image_bytes

ROOT = Path(__file__).parents[2]
IDS = {
    "train": "3b0ba488969b00104dff5c0440fbbb4c2071e8806dea1de7b51e29f805702a2f",
    "validation": "d5a7b60496f0bfe5679390695eded155f0c7b43e554d620e74b4e09c7e8c5761",
    "test": "947a582e5ca52796a441295f10927d8134fe532e52199998cbb73529c95c4361",
}
GOOD = ["what color is the shape?", "gray", 0]


@pytest.fixture(scope="module")
def source() -> Source:
    return load(LoadRequest())


def write_easy_vqa(folder: Path, train: Any = (GOOD,)) -> Path:
    for pool, entries in (("train", train), ("test", [GOOD])):
        (folder / pool / "images").mkdir(parents=True)
        (folder / pool / "images" / "0.png").write_bytes(image_bytes(1, side=64))
        (folder / pool / "questions.json").write_text(json.dumps(entries))
    (folder / "answers.txt").write_text("yes\nno\ngray\ncircle\n")
    return folder


def loaded(root: Path, **options: Any) -> Source:
    return load(LoadRequest(root, options=options, check_rows=False))


def test_the_entry_points_lead_to_the_cards() -> None:
    project = tomllib.loads((ROOT / "examples" / "easy_vqa" / "pyproject.toml").read_text())["project"]
    points = {name: path for group in project["entry-points"].values() for name, path in group.items()}
    assert {name: pkgutil.resolve_name(path).name for name, path in points.items()} == {
        "easy-vqa": "easy-vqa",
        "easy-vqa-llava": "easy-vqa-llava",
    }
    assert CARD.packaged and CARD.prompt in PROMPT_FORMS and CARD.image_size == (64, 64)


def test_the_package_has_the_counts_that_its_authors_give(source: Source) -> None:
    kinds = {pool: Counter(q.meta["kind"] for q in questions) for pool, questions in source.pools.items()}
    # README of easy-VQA: 28,407 of 38,575 training and 7,136 of 9,673 test questions are yes/no.
    assert {pool: (count.total(), count["yes-no"]) for pool, count in kinds.items()} == {
        "train": (38_575, 28_407),
        "test": (9_673, 7_136),
    }
    assert set(kinds["train"]) == {"yes-no", "shape", "color"}
    assert source.rejected == () and source.revision == "easy-vqa 1.0"


def test_questions_of_one_image_are_one_group(source: Source) -> None:
    groups = {pool: len({q.group for q in questions}) for pool, questions in source.pools.items()}
    assert groups == {"train": 4_000, "test": 1_000}
    assert source.pools["train"][0].group == "train:0" and source.pools["test"][0].group == "test:0"


def test_images_are_png_files_of_the_package(source: Source) -> None:
    image = source.pools["test"][-1].image
    assert image is not None and image.read().startswith(b"\x89PNG")


def test_the_split_is_pinned(source: Source) -> None:
    split = split_questions(source, n_train=1_000, n_test=500, seed=0)
    assert split.ids_sha256 == IDS


def test_the_package_is_not_imported(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "easy_vqa", raising=False)
    load(LoadRequest())
    assert "easy_vqa" not in sys.modules


def test_gray_may_be_spelt_grey(tmp_path: Path) -> None:
    (question,) = loaded(write_easy_vqa(tmp_path)).pools["train"]
    assert question.references == ("gray", "grey") and question.meta == {"kind": "color"}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (["is it?", "yes"], "not [question, answer, image id]"),
        ({"question": "is it?"}, "not [question, answer, image id]"),
        (["", "yes", 0], "question is blank"),
        (["is it?", None, 0], "answer is None, not text"),
        (["is it?", "maybe", 0], "answer is 'maybe', outside circle, gray, no, yes"),
        (["is it?", "yes", "first"], "image id is 'first', not a whole number"),
        (["is it?", "yes", 7], "images/7.png is absent"),
    ],
)
def test_a_malformed_row_is_rejected_and_the_others_keep_their_numbers(
    tmp_path: Path, entry: Any, reason: str
) -> None:
    source = loaded(write_easy_vqa(tmp_path, [GOOD, entry, GOOD]))
    assert [q.question_id for q in source.pools["train"]] == ["train:0", "train:2"]
    (rejected,) = source.rejected
    assert (rejected.file, rejected.row) == (str(tmp_path / "train" / "questions.json"), "row 1")
    assert reason in rejected.reason and rejected.remedy


def test_another_number_of_rows_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="train has 1 rows, expected 38575"):
        load(LoadRequest(write_easy_vqa(tmp_path)))


@pytest.mark.parametrize(
    ("content", "message"),
    [("[[", "is not JSON"), ('{"a": 1}', "not a list of questions"), (None, "cannot be read")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    file = write_easy_vqa(tmp_path) / "test" / "questions.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match=rf"test/questions\.json.* {message}|{message}.*test/questions\.json"):
        loaded(tmp_path)


def test_without_the_package_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install easy-vqa==1.0"):
        load(LoadRequest())


def test_an_option_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown option 'kinds'"):
        loaded(write_easy_vqa(tmp_path), kinds=["shape"])
