"""Questions of one's own: what a file may hold, and what is told of a row that cannot be used."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpu.datasets.base import DATASETS, LoadRequest, Source
from sgpu.datasets.own_questions import JSONL, PARQUET, load_jsonl, load_parquet
from sgpu.datasets.split import split_questions
from sgpu.errors import DataError, UsageError
from sgpu.models.cards import PROMPT_FORMS
from tests.datasets.class_fixtures import image_bytes

IDS = {
    "train": "0fc07aa40d58b75e2d498f4c9035332c68ff04e75c7219ecb163cb30fb7c9735",
    "validation": "58e2791934fdd9cfdd6d0e892cb6ca4894abc58559de0ec04d51bc2801bad291",
    "test": "bd6ec4d3534a13de10aa90be99ff6de029a0c37da3847d5bea1c457e14774cd2",
}


def row(i: int, **changes: Any) -> dict[str, Any]:
    return {"question_id": f"q{i}", "question": f"Question {i}?", "references": ["yes", "yeah"], **changes}


def write_jsonl(file: Path, rows: list[Any]) -> Path:
    file.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return file


def from_jsonl(folder: Path, rows: list[Any]) -> Source:
    return load_jsonl(LoadRequest(write_jsonl(folder / "own.jsonl", rows)))


def from_parquet(folder: Path, rows: list[dict[str, Any]]) -> Source:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = pa.table({column: [row.get(column) for row in rows] for column in columns})
    pq.write_table(table, folder / "own.parquet")
    return load_parquet(LoadRequest(folder / "own.parquet"))


LOADERS = {"jsonl": from_jsonl, "parquet": from_parquet}


def test_the_registry_has_both_cards() -> None:
    assert DATASETS.get("jsonl") is JSONL and DATASETS.get("parquet") is PARQUET
    assert {JSONL.prompt, PARQUET.prompt} <= set(PROMPT_FORMS)


@pytest.mark.parametrize("kind", LOADERS)
def test_rows_become_questions_of_one_pool(tmp_path: Path, kind: str) -> None:
    source = LOADERS[kind](tmp_path, [row(0, group="g", all_answers=["yes", "yes", "no"]), row(1)])
    first, second = source.pools["all"]
    assert (first.question_id, first.text, first.group) == ("q0", "Question 0?", "g")
    assert first.references == ("yes", "yeah") and first.all_answers == ("yes", "yes", "no")
    assert second.group == "q1" and second.all_answers == () and second.stratum is None
    assert source.rejected == () and source.notes == ()


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst"])
def test_every_packing_gives_the_same_questions(tmp_path: Path, suffix: str) -> None:
    text = "".join(json.dumps(row(i)) + "\n" for i in range(5)).encode()
    file = tmp_path / f"own{suffix}"
    if suffix.endswith(".zst"):
        with pa.output_stream(file, compression="zstd") as stream:
            stream.write(text)
    else:
        file.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    assert len(load_jsonl(LoadRequest(file)).pools["all"]) == 5


@pytest.mark.parametrize("kind", LOADERS)
def test_a_split_in_the_file_makes_two_pools(tmp_path: Path, kind: str) -> None:
    source = LOADERS[kind](tmp_path, [row(i, split="test" if i < 2 else "train") for i in range(6)])
    assert {pool: len(questions) for pool, questions in source.pools.items()} == {"train": 4, "test": 2}


@pytest.mark.parametrize("kind", LOADERS)
def test_a_class_is_the_stratum(tmp_path: Path, kind: str) -> None:
    source = LOADERS[kind](tmp_path, [row(i, **{"class": "ab"[i % 2]}) for i in range(20)])
    split = split_questions(source, n_train=10, n_test=4, seed=0)
    tested = [r.question.stratum for r in split.rows if r.split == "test"]
    assert sorted(tested, key=str) == ["a", "a", "b", "b"]


def test_the_split_is_pinned(tmp_path: Path) -> None:
    split = split_questions(from_jsonl(tmp_path, [row(i) for i in range(20)]), 10, 5, 0)
    assert split.ids_sha256 == IDS


def test_another_content_is_another_revision(tmp_path: Path) -> None:
    first = from_jsonl(tmp_path, [row(0)]).revision
    assert first.startswith("sha256:") and from_jsonl(tmp_path, [row(1)]).revision != first


@pytest.mark.parametrize("wrapped", [False, True], ids=["bytes", "struct"])
def test_image_bytes_stand_in_parquet(tmp_path: Path, wrapped: bool) -> None:
    cells: list[Any] = [image_bytes(i) for i in range(3)]
    rows = [row(i, image={"bytes": cell, "path": None} if wrapped else cell) for i, cell in enumerate(cells)]
    images = [q.image for q in from_parquet(tmp_path, rows).pools["all"]]
    assert [image.read() for image in images if image] == cells


@pytest.mark.parametrize("kind", LOADERS)
def test_an_image_may_lie_beside_the_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(image_bytes(4))
    (question,) = LOADERS[kind](tmp_path, [row(0, image_path="pictures/a.png")]).pools["all"]
    assert question.image is not None and question.image.read() == image_bytes(4)


@pytest.mark.parametrize("path", ["../secret.png", "/etc/hostname", "inside/../../secret.png", "link.png"])
def test_an_image_path_that_leaves_the_folder_is_rejected(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret.png").write_bytes(image_bytes(1))
    folder = tmp_path / "own"
    (folder / "inside").mkdir(parents=True)
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (rejected,) = from_jsonl(folder, [row(0, image_path=path)]).rejected
    assert f"image_path is '{path}', which leaves the folder {folder}" in rejected.reason


BAD_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "no id": ({"question_id": None}, "question_id is None, not text"),
    "blank id": ({"question_id": " "}, "question_id is blank"),
    "an id twice": ({"question_id": "q0"}, "the id 'q0' was already used by"),
    "blank question": ({"question": ""}, "question is blank"),
    "no references": ({"references": None}, "references is None, not a list"),
    "empty references": ({"references": []}, "references has no answer"),
    "unknown split": ({"split": "dev"}, "split is 'dev', outside train, test"),
    "blank class": ({"class": " "}, "class is blank"),
    "no such image": ({"image_path": "none.png"}, "there is no such file"),
    "blank image path": ({"image_path": ""}, "image_path is blank"),
    "image path with a null": ({"image_path": "a\0b"}, "image_path is"),
}


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize(("changes", "reason"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_malformed_row_is_rejected_and_the_others_go_on(
    tmp_path: Path, kind: str, changes: dict[str, Any], reason: str
) -> None:
    source = LOADERS[kind](tmp_path, [row(0), row(1, **changes), row(2)])
    assert [q.question_id for q in source.pools["all"]] == ["q0", "q2"]
    (rejected,) = source.rejected
    assert rejected.row == {"jsonl": "line 2", "parquet": "row 1"}[kind]
    assert rejected.file == str(tmp_path / f"own.{kind}")
    assert reason in rejected.reason and rejected.remedy


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"question": 7}, "question is 7, not text"),
        ({"question": "\ud800"}, "question contains an invalid Unicode surrogate"),
        ({"references": "yes"}, "references is 'yes', not a list"),
        ({"references": ["yes", 1]}, "references is 1, not text"),
        ({"references": ["", " "]}, "references has no answer"),
        ({"all_answers": "yes"}, "all_answers is 'yes', not a list"),
        ({"group": {}}, "group is {}, not text"),
        ({"split": ["train"]}, "split is ['train'], outside train, test"),
        ({"image": "aGVsbG8="}, "image is not read from JSON"),
    ],
)
def test_a_value_of_another_type_is_rejected(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    (rejected,) = from_jsonl(tmp_path, [row(0), row(1, **changes)]).rejected
    assert reason in rejected.reason


@pytest.mark.parametrize("line", ["{not JSON", "[1, 2]"])
def test_a_line_that_is_no_object_is_rejected(tmp_path: Path, line: str) -> None:
    file = write_jsonl(tmp_path / "own.jsonl", [row(0)])
    file.write_text(file.read_text() + line + "\n")
    source = load_jsonl(LoadRequest(file))
    assert len(source.pools["all"]) == 1
    assert [r.row for r in source.rejected] == ["line 2"] and source.rejected[0].reason.startswith(
        "the line is"
    )


@pytest.mark.parametrize("what", ["split", "class", "image"])
def test_a_row_that_lacks_what_others_have_is_rejected(tmp_path: Path, what: str) -> None:
    value = {"split": "train", "class": "a", "image": image_bytes(1)}[what]
    source = from_parquet(tmp_path, [row(0, **{what: value}), row(1, **{what: None})])
    (rejected,) = source.rejected
    assert rejected.row == "row 1" and f"{what} is missing while other rows have one" in rejected.reason
    assert sum(map(len, source.pools.values())) == 1


def test_a_row_with_two_images_is_rejected(tmp_path: Path) -> None:
    (rejected,) = from_parquet(tmp_path, [row(0, image=image_bytes(1), image_path="a.png")]).rejected
    assert "both image and image_path" in rejected.reason


@pytest.mark.parametrize("kind", LOADERS)
def test_a_missing_column_is_named_with_those_found(tmp_path: Path, kind: str) -> None:
    rows = [{"question_id": "a", "question": "Who?", "answer": "x"}]
    with pytest.raises(DataError, match=r"no column references.*found answer, question, question_id"):
        LOADERS[kind](tmp_path, rows)


@pytest.mark.parametrize("kind", LOADERS)
def test_columns_that_are_not_read_are_told(tmp_path: Path, kind: str) -> None:
    (note,) = LOADERS[kind](tmp_path, [row(0, grp="a", source="b")]).notes
    assert note == f"own.{kind}: columns that are not read: grp, source."


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"own\.jsonl has no rows"):
        load_jsonl(LoadRequest(tmp_path / "own.jsonl"))


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.parquet").write_bytes(b"PAR1 and more")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        load_parquet(LoadRequest(tmp_path / "own.parquet"))


@pytest.mark.parametrize(
    ("root", "message"),
    [(None, "no path is not a file"), (Path("none.jsonl"), "none.jsonl is not a file")],
)
def test_a_path_that_is_no_file_is_refused(root: Path | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_jsonl(LoadRequest(root))


def test_a_file_of_another_kind_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "own.csv", [row(0)])
    with pytest.raises(DataError, match=r"reads \.jsonl, \.jsonl\.gz, \.jsonl\.zst, .* not .*own\.csv"):
        load_jsonl(LoadRequest(file))


def test_an_option_is_refused_by_name(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "own.jsonl", [row(0)])
    with pytest.raises(UsageError, match="unknown option 'columns'"):
        load_jsonl(LoadRequest(file, options={"columns": {}}))
