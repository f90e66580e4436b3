"""`sgpu plan` from the shell: exit codes and streams."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

STUDY = "models: [qwen2.5-3b-instruct]\ndatasets: [{kind: triviaqa}]\n"


def plan(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "s.yaml").write_text(STUDY)
    command = [sys.executable, "-c", "from sgpu.cli import main; main()", "plan", "s.yaml", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_plan_is_printed_and_nothing_is_written(tmp_path: Path) -> None:
    done = plan(tmp_path, "--gpus", "4")
    assert done.returncode == 0, done.stderr
    assert "sample qwen2.5-3b-instruct" in done.stdout and "\x1b[" not in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


def test_json_alone_stands_on_standard_output(tmp_path: Path) -> None:
    done = plan(tmp_path, "--json", "--set", "rates.vllm.sequences_per_s=400")
    assert json.loads(done.stdout)["rates"]["vllm"]["sequences_per_s"] == 400


def test_an_unknown_rate_exits_2(tmp_path: Path) -> None:
    done = plan(tmp_path, "--set", "rates.vllm.sequences=400")
    assert done.returncode == 2
    assert "Did you mean 'sequences_per_s'" in done.stderr and "Traceback" not in done.stderr


def test_a_shipped_study_is_found_by_its_name_where_there_is_no_such_file(tmp_path: Path) -> None:
    code = "import sys; from sgpu.cli import main; main()"
    command = [sys.executable, "-c", code, "plan", "paper.yaml"]
    for own, told in ((None, "Plan of study paper"), (STUDY.replace("triviaqa", "nothing"), "nothing")):
        if own:
            (tmp_path / "paper.yaml").write_text(own)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert told in done.stdout + done.stderr
