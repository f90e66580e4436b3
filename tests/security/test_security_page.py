"""Every line of the threat model has a test, and each test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.security.forbidden_code import ROOT

PAGE = ROOT / "infra" / "SECURITY.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def threats(page: str) -> list[str]:
    """The rows of the table without its head."""
    return [line for line in page.splitlines() if line.startswith("|")][2:]


def names_in(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def faults(page: str, root: Path) -> list[str]:
    """Rows without a test, and tests that do not exist."""
    found = [f"no test: {row}" for row in threats(page) if not NAMED.search(row)]
    named = NAMED.findall(page)
    return found + [f"{path}::{name}" for path, name in named if name not in names_in(root / path)]


def test_every_line_names_tests_that_exist() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(threats(page)) > 20
    assert faults(page, ROOT) == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("| theft | a lock | none |", "no test"),
        ("| theft | a lock | `tests/test_door.py::test_open` |", "tests/test_door.py::test_open"),
        ("| theft | a lock | `tests/test_gone.py::test_closed` |", "tests/test_gone.py::test_closed"),
    ],
)
def test_a_line_without_a_test_would_be_found(row: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_door.py").write_text("def test_closed() -> None: ...\n")
    covered = "| fire | an alarm | `tests/test_door.py::test_closed` |"
    page = f"| threat | measure | test |\n| --- | --- | --- |\n{covered}\n{row}\n"
    (found,) = faults(page, tmp_path)
    assert fault in found


@pytest.mark.parametrize(
    "word",
    [
        "Logs", "Judges", "Models", "Registry", "Archives", "token", "loopback", "Secrets", "Pages", "audit",
        "Tables", "Asking again",
    ],
)  # fmt: skip
def test_the_page_speaks_of_every_part(word: str) -> None:
    assert word in PAGE.read_text(encoding="utf-8")
