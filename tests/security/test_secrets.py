"""Secrets come from the environment, stand in no file of ours, and are written nowhere."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.forbidden_code import ROOT, files

# Forms that only real keys have.
KEYS = {
    "AWS": r"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
    "Hugging Face": r"\bhf_[A-Za-z0-9]{30,}\b",
    "OpenAI or Anthropic": r"\bsk-[A-Za-z0-9_-]{32,}\b",
    "GitHub": r"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})\b",
    "Google": r"\bAIza[0-9A-Za-z_-]{35}\b",
    "Slack": r"\bxox[abprs]-[0-9A-Za-z-]{20,}",
    "private key": r"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----",
    "password in an address": r"\b[a-z][a-z0-9+.-]*://[^\s/:@'\"{}$<>]+:[^\s/:@'\"{}$<>]{6,}@[a-z0-9.-]+",
}
# What is written where a person, a log or a report sees it.
TELLING = {
    "print",
    "echo",
    "debug",
    "info",
    "warning",
    "error",
    "exception",
    "critical",
    "log",
    "say",
    "write_text",
}
MADE_UP = re.compile(r"example|secret|hunter2|password|s3cret|user:|do-not-show", re.IGNORECASE)


def tracked() -> list[Path]:
    """Every text file of the repository, those that are new included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    names = [name for name in done.stdout.decode().split("\0") if name]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def keys_in(text: str) -> list[str]:
    """The kinds of keys that stand in a text; what a test made up is none."""
    return [
        kind
        for kind, form in KEYS.items()
        for match in re.finditer(form, text)
        if not MADE_UP.search(match[0])
    ]


def told_environment(path: Path) -> Iterator[str]:
    """`file:line` of every call that tells somebody the value of an environment variable."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        inside = [ast.unparse(part) for one in given for part in ast.walk(one) if isinstance(part, ast.expr)]
        if name in TELLING and {"os.environ", "environ", "os.getenv", "getenv"} & set(inside):
            yield f"{path.name}:{node.lineno}"


def test_no_file_of_the_repository_holds_a_key() -> None:
    found = {
        str(path.relative_to(ROOT)): kinds
        for path in tracked()
        if (kinds := keys_in(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AWS", "AKIA" + "ABCDEFGH" * 2),
        ("Hugging Face", "hf_" + "a1B2c3D4" * 4),
        ("OpenAI or Anthropic", "sk-" + "a1B2c3D4" * 5),
        ("GitHub", "ghp_" + "a1B2c3D4e" * 4),
        ("Google", "AIza" + "a1B2c" * 7),
        ("Slack", "xoxb-" + "1234567890-" * 2),
        ("private key", "-----BEGIN " + "RSA PRIVATE KEY-----"),
        ("password in an address", "postgresql://" + "mlflow:x7Kq9Zt2" + "@db.internal/mlflow"),
    ],
)
def test_a_key_would_be_found(kind: str, text: str) -> None:
    assert keys_in(f"value: {text}\n") == [kind]


def test_no_code_tells_the_value_of_an_environment_variable() -> None:
    assert [place for path in files(ROOT) for place in told_environment(path)] == []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nprint(os.environ['HF_TOKEN'])",
        "import os\nlog.info('key %s', os.getenv('KEY'))",
        "from os import environ\nconsole.print(f'with {environ}')",
    ],
)
def test_a_told_variable_would_be_found(source: str, tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(source)
    assert list(told_environment(planted)) == ["planted.py:2"]
