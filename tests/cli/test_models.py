"""`sgpu fit` and `sgpu model`: a wrong command is told before what takes seconds is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CALL = """
import sys
from sgpu.cli import app
from sgpu.errors import SgpuError
try:
    app(sys.argv[1:])
except SgpuError as error:
    print(error)
print("imported:", *{"torch", "dagster", "ray", "mlflow"} & set(sys.modules))
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit --responses a.jsonl", "give --out DIR, --register NAME, or both"),
        ("fit --responses a.csv --out m", "a.csv: this kind of file is not read"),
        ("fit --responses none.jsonl --out m", "none.jsonl: no such file"),
        ("fit --responses a.jsonl --out m --promote", "give the name to register too"),
        ("fit --responses a.jsonl --out m --judge llm", "judge 'llm' cannot label a file"),
        (
            "fit --responses a.jsonl --out m --method x",
            "give auto, sgpu_plus, sgpu",
        ),
        ("benchmark csv.yaml", "a.csv: this kind of file is not read"),
        ("model list nope --tracking sqlite:///no.db", "there is no MLflow store at"),
        ("model promote nope 1 --tracking sqlite:///no.db", "there is no MLflow store at"),
    ],
)
def test_a_usage_error_comes_before_heavy_imports(tmp_path: Path, words: str, message: str) -> None:
    for name in ("a.csv", "a.jsonl"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "csv.yaml").write_text("datasets: [{kind: responses, path: a.csv, model: m}]")
    done = subprocess.run(
        [sys.executable, "-c", CALL, *words.split()], cwd=tmp_path, capture_output=True, text=True
    )
    assert message in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1].strip() == "imported:"
