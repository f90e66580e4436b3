"""Preparing questions: once, with all that another machine needs to tell that it has the same ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sgpu.errors import UsageError
from sgpu.stages.questions import prepare_questions
from sgpu.stages.run import Run
from sgpu.storage import store
from tests.stages.quiet_runs import quiet_run

LINE = '{{"question_id": "q{i}", "question": "What is {i}?", "references": ["{i}"]}}\n'


def lines(n: int) -> str:
    return "".join(LINE.format(i=i) for i in range(n))


def made(folder: Path, file: Path, **dataset: Any) -> Run:
    spec = {"kind": "jsonl", "name": "own", "path": str(file), "n_train": 20, "n_test": 10, **dataset}
    study = {"models": ["smollm2-135m-instruct"], "datasets": [spec], "tracking": {"mlflow": "none"}}
    return quiet_run(study, folder)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.jsonl"
    path.write_text(lines(50))
    return path


def test_the_manifest_tells_what_was_asked_for_and_granted(tmp_path: Path, file: Path) -> None:
    manifest = prepare_questions(made(tmp_path / "out", file, n_test=100), "own").manifest
    granted = {row["split"]: (row["requested"], row["granted"]) for row in manifest["granted"]}
    assert granted["test"] == (100, 50)
    assert manifest["pools"] == {"all": 50}
    assert set(manifest["ids_sha256"]) == {"train", "validation", "test"}


def test_a_second_call_does_nothing(tmp_path: Path, file: Path) -> None:
    first = prepare_questions(made(tmp_path / "out", file), "own")
    run = made(tmp_path / "out", file)
    assert prepare_questions(run, "own").version == first.version
    assert run.outcomes[0].reused


def test_the_source_is_not_needed_again(tmp_path: Path, file: Path) -> None:
    first = prepare_questions(made(tmp_path / "out", file), "own")
    file.unlink()
    assert prepare_questions(made(tmp_path / "out", file), "own").fingerprint == first.fingerprint


def test_without_the_source_other_settings_are_refused(tmp_path: Path, file: Path) -> None:
    prepare_questions(made(tmp_path / "out", file), "own")
    file.unlink()
    with pytest.raises(UsageError, match="there is nothing at"):
        prepare_questions(made(tmp_path / "out", file, n_test=5), "own")


def test_an_edited_source_is_prepared_anew(tmp_path: Path, file: Path) -> None:
    first = prepare_questions(made(tmp_path / "out", file), "own")
    file.write_text(lines(51))
    assert prepare_questions(made(tmp_path / "out", file), "own").fingerprint != first.fingerprint


def test_two_machines_have_the_same_rows(tmp_path: Path, file: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "copy.jsonl"
    elsewhere.parent.mkdir()
    shutil.copy(file, elsewhere)
    one = prepare_questions(made(tmp_path / "one", file), "own")
    two = prepare_questions(made(tmp_path / "two", elsewhere), "own")
    assert one.read().equals(two.read())
    assert one.manifest["ids_sha256"] == two.manifest["ids_sha256"]


def test_bad_rows_are_in_the_manifest_and_the_others_go_on(tmp_path: Path, file: Path) -> None:
    file.write_text(lines(5) + '{"question_id": "bad"}\n' + "no json\n")
    run = made(tmp_path / "out", file, n_test=3)
    manifest = prepare_questions(run, "own").manifest
    assert manifest["n_rejected"] == 2 and manifest["rows"] == 5
    assert all(row["file"].endswith("own.jsonl") for row in manifest["rejected"])
    assert all(row["reason"] and row["remedy"] and row["row"] for row in manifest["rejected"])


def test_large_tables_are_cut_into_shards(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SHARD_BYTES", 1)
    monkeypatch.setattr("sgpu.datasets.split.TEXT_ROWS", 8)
    published = prepare_questions(made(tmp_path / "out", file), "own")
    assert len(published.files) == 4  # 30 rows, 8 a row group, one row group a file
    assert sum(pq.read_metadata(one).num_rows for one in published.files) == published.rows == 30
