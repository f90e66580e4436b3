"""`sgpu logs check`: what logs are read as, told without a model and without writing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgpu.cli import app
from sgpu.errors import DataError
from sgpu.scoring.logs_check import NOTHING, check_logs
from tests.scoring.log_fixtures import FILES, FOLDER
from tests.scoring.log_folders import DAY, row, write


def checked(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["logs", "check", *map(str, arguments)])
    return found.exit_code, found.output


def test_each_file_is_told_with_what_it_is_read_as_and_nothing_is_written(tmp_path: Path) -> None:
    folder = tmp_path / f"dt={DAY}"
    for name in FILES:
        write(folder / f"{name}.jsonl", (FOLDER / f"{name}.jsonl").read_bytes())
    before = sorted(tmp_path.rglob("*"))
    code, text = checked(tmp_path)
    assert code == 0 and sorted(tmp_path.rglob("*")) == before
    for name, format in FILES.items():
        assert f"dt={DAY}/{name}.jsonl" in text and f"{format} " in text
    assert "calls in events, joined" in text and "other span" in text and "failed_request" in text


def test_a_record_is_shown_without_its_texts(tmp_path: Path) -> None:
    samples = [{"text": "a secret answer"}, {"text": "b"}]
    write(tmp_path / "a.jsonl", [row(1, samples=samples, prompt="a secret question", route="bot")])
    code, text = checked(tmp_path / "a.jsonl")
    assert code == 0 and "secret" not in text
    assert "r-1, 2026-11-20 12:00:00+00:00, model m, route bot: 2 answers of 15, 1 characters" in text


def test_only_the_first_rows_of_a_file_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [row(i) for i in range(30)])
    (file,) = check_logs(str(tmp_path), rows=10).files
    assert (file.rows, file.sets, file.cut) == (10, 10, True)
    code, text = checked(tmp_path, "--rows", 10)
    assert code == 0 and "10+" in text


def test_single_answers_count_where_there_is_a_second_one(tmp_path: Path) -> None:
    singles = [row(i, samples=None, text="x", prompt="same" if i < 3 else f"q{i}") for i in range(5)]
    write(tmp_path / "a.jsonl", singles)
    code, text = checked(tmp_path)
    assert code == 0 and "1 requests could be scored; 3 of 5 single answers have a second one" in text


def test_rows_of_no_format_are_told_with_a_way_out_and_a_map_is_one(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", [{"no": 1, "ask": "?", "said": ["x", "y"], "at": "2026-11-20T12:00:00Z"}]
    )
    code, text = checked(path)
    assert code == NOTHING and "'no', 'ask', 'said', 'at'" in text and "--map" in text
    map = tmp_path / "map.yaml"
    map.write_text(json.dumps({"answers": "said", "id": "no", "question": "ask", "time": "at"}))
    code, text = checked(path, "--map", map)
    assert code == 0 and "map 1" in text and "1 requests could be scored" in text


def test_no_files_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no files"):
        check_logs(str(tmp_path))
