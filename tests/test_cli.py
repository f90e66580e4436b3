"""What a user sees when something is wrong: one message, the right exit code, nothing run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgpu.cli import app

STUDY = "name: s\nmodels: [smollm2-135m-instruct]\ndatasets: [{kind: worldfacts}]\n"


def run_sgpu(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from sgpu.cli import main; main()", *words]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, env=environment)


def _study(folder: Path, text: str) -> str:
    (folder / "s.yaml").write_text(text)
    return "s.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STUDY + "methods: [sgpu, semantic_entropi]", "unknown method 'semantic_entropi'"),
        (STUDY.replace("smollm2-135m", "smollm2-136m"), "Did you mean 'smollm2-135m-instruct'?"),
        (STUDY + "encoder: {name: all-MiniLM-L7-v2}", "all-MiniLM-L6-v2"),
        (STUDY + "methdos: [sgpu]", "Did you mean 'methods'?"),
        ("name: s\ndatasets: [{kind: responses, path: none.jsonl}]", "there is no file"),
    ],
)
def test_a_study_that_cannot_run_exits_2_before_any_work(tmp_path: Path, text: str, message: str) -> None:
    done = run_sgpu("benchmark", _study(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_output_folder_that_cannot_be_written_exits_2(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    done = run_sgpu("benchmark", _study(tmp_path, STUDY), "--out", "taken/run", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot write to the output folder" in done.stderr and "--out" in done.stderr


def test_an_unknown_option_exits_2(tmp_path: Path) -> None:
    done = run_sgpu("benchmark", "--outt", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert "--out" in done.stderr and "Traceback" not in done.stderr


def test_help_names_every_command(tmp_path: Path) -> None:
    done = run_sgpu("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "benchmark" in done.stdout and "doctor" in done.stdout


def test_score_has_an_option_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("pipelines.nightly.score_logs", lambda _file, flags, _set: given.update(flags) or 0)
    line = [
        "score",
        "--logs",
        "l",
        "--model",
        "models:/m@champion",
        "--out",
        "o",
        "--tracking",
        "sqlite:///x.db",
    ]
    with pytest.raises(SystemExit) as ended:
        app(line)
    assert ended.value.code == 0 and given["tracking"] == "sqlite:///x.db"


def test_an_error_does_not_steer_the_terminal(tmp_path: Path) -> None:
    row = '{"question": "?", "answers": ["a", "b"], "\\u001b]0;PWNED\\u0007\\u001b[2J": 1}'
    (tmp_path / "esc.jsonl").write_text(f"{row}\n")
    done = run_sgpu("fit", "--responses", "esc.jsonl", "--out", "m\x1b[31m", cwd=tmp_path)
    assert done.returncode != 0 and "error" in done.stderr
    assert not {"\x1b", "\x07"} & set(done.stderr + done.stdout)
