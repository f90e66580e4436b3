"""VizWiz: the authors' train questions, or the Hub's validation questions where those are absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgpu.datasets.sources.vizwiz import CARD, load_vizwiz
from sgpu.errors import DataError
from sgpu.models.cards import PROMPT_FORMS
from tests.datasets.loading import loader
from tests.datasets.vqa_fixtures import png, write_vizwiz

loaded = loader(load_vizwiz)


def edit(folder: Path, index: int, entry: Any) -> Path:
    """Replace one entry of train.json; a mapping is laid over the one that is there."""
    entries = json.loads((folder / "train.json").read_text())
    entries[index] = {**entries[index], **entry} if isinstance(entry, dict) else entry
    (folder / "train.json").write_text(json.dumps(entries))
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_train_questions_are_read_from_files_or_archives(tmp_path: Path, zipped: bool) -> None:
    source = loaded(write_vizwiz(tmp_path, zipped=zipped))
    question = source.pools["all"][2]
    assert len(source.pools["all"]) == 24 and source.rejected == () and source.notes == ()
    assert question.question_id == question.group == "VizWiz_train_00000002.jpg"
    assert question.references == ("unanswerable", "cup")
    assert question.image is not None and question.image.read() == png(2)


def test_answerable_is_kept_in_meta(tmp_path: Path) -> None:
    first, _, third = loaded(write_vizwiz(tmp_path)).pools["all"][:3]
    assert (first.meta["answerable"], third.meta["answerable"]) == (1, 0)
    assert (third.meta["answer_type"], third.meta["unanswerable"]) == ("unanswerable", True)


def test_without_train_the_validation_questions_serve_and_this_is_told(tmp_path: Path) -> None:
    source = loaded(write_vizwiz(tmp_path, layout="hub"))
    question = source.pools["all"][2]
    assert question.question_id == question.group == "VizWiz_val_00000002.jpg"
    assert question.meta["answer_type"] == "unanswerable"
    assert question.image is not None and question.image.read() == png(2)
    assert "24 validation questions" in source.notes[0] and "Ask for 3,319 and 1,000" in source.notes[0]


def test_train_goes_before_validation(tmp_path: Path) -> None:
    write_vizwiz(tmp_path, layout="hub")
    source = loaded(write_vizwiz(tmp_path))
    assert source.pools["all"][0].question_id == "VizWiz_train_00000000.jpg"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"image": "gone.jpg"}, "image gone.jpg is absent"),
        ({"image": None}, "image is None, not text"),
        ({"image": "VizWiz_train_00000000.jpg"}, "was already used by"),
        ({"question": ""}, "question is blank"),
        ({"question": 3}, "question is 3, not text"),
        ({"answers": []}, "there are no answers"),
        ({"answers": {"answer": "cup"}}, "not a list"),
        ({"answers": [{"answer": 5}]}, "answer 0 is 5, not text"),
        ({"answers": [{"answer_confidence": "yes"}]}, "answer 0 is None, not text"),
        ("cup", "it is 'cup', not a mapping"),
    ],
)
def test_a_malformed_entry_is_rejected_and_the_others_go_on(tmp_path: Path, entry: Any, reason: str) -> None:
    source = loaded(edit(write_vizwiz(tmp_path, 3), 1, entry))
    assert [q.meta["answerable"] for q in source.pools["all"]] == [1, 0]
    (rejected,) = source.rejected
    assert Path(rejected.file).name == "train.json" and rejected.row.startswith(("entry 1", "image "))
    assert reason in rejected.reason and rejected.remedy


def test_annotations_that_are_no_list_are_refused(tmp_path: Path) -> None:
    write_vizwiz(tmp_path)
    (tmp_path / "train.json").write_text('{"questions": []}')
    with pytest.raises(DataError, match=r"train\.json holds no list"):
        loaded(tmp_path)


def test_a_cut_off_image_archive_is_named(tmp_path: Path) -> None:
    write_vizwiz(tmp_path, zipped=True)
    archive = tmp_path / "train.zip"
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"train\.zip cannot be read as an archive"):
        loaded(tmp_path)


def test_an_empty_folder_is_told_what_to_download(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"neither train\.json nor Parquet files\. Found: nothing\. Download https://vizwiz"
    ):
        loaded(tmp_path)


def test_the_prompt_form_lets_the_model_say_unanswerable() -> None:
    assert "Unanswerable" in PROMPT_FORMS[CARD.prompt]
