"""A test that is skipped shows nothing: only what another machine may lack, and is named here, may be.

Browser and promtool are installed by `.ci/run`; of kubectl Debian has a version that is too old.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import NO_BROWSER

ROOT = Path(__file__).parents[1]
PERMITTED = re.compile(
    r"GPU|needs another user|NO_BROWSER|needs promtool|needs kubectl|needs namespaces|`make parity`"
)
SKIPS = re.compile(r"(pytest\.)?(skip|importorskip|mark\.skip|mark\.skipif)")


def skips(source: str) -> Iterator[str]:
    """Every call that can skip a test, as it is written, but for tests that run on a GPU alone."""

    def calls(node: ast.AST) -> Iterator[str]:
        marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
        if "pytest.mark.gpu" in marks:
            return
        if isinstance(node, ast.Call) and SKIPS.fullmatch(ast.unparse(node.func)):
            yield ast.unparse(node)
        for child in ast.iter_child_nodes(node):
            yield from calls(child)

    tree = ast.parse(source)
    marks = [
        ast.unparse(s.value)
        for s in tree.body
        if isinstance(s, ast.Assign) and "pytestmark" in ast.unparse(s)
    ]
    if not any("pytest.mark.gpu" in mark for mark in marks):
        yield from calls(tree)


def test_only_a_gpu_another_user_or_what_ci_installs_skips_a_test() -> None:
    written = [
        f"{path.relative_to(ROOT)}: {call}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for call in skips(path.read_text())
    ]
    assert all(any(word in call for call in written) for word in ("NO_BROWSER", "promtool"))
    assert [call for call in written if not PERMITTED.search(call)] == []


@pytest.mark.parametrize(
    "source",
    ["pytest.importorskip('zstandard')", "@pytest.mark.skip\ndef test() -> None: pytest.skip('slow here')"],
)
def test_a_skip_for_another_reason_is_seen(source: str) -> None:
    assert [call for call in skips(source) if not PERMITTED.search(call)]


def test_a_machine_without_chromium_is_told_the_packages_name() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/report/test_layout.py"]
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": "/nowhere"}, capture_output=True, text=True, timeout=300
    )
    lines = [line for line in ran.stdout.splitlines() if line.endswith(NO_BROWSER) and "did not run" in line]
    assert lines == [f"5 tests of pages did not run: {NO_BROWSER}"], ran.stdout + ran.stderr


def test_ci_ends_where_no_chromium_can_be_had(tmp_path: Path) -> None:
    """The script itself, on a machine that has neither a browser nor a package manager."""
    for name in ("dirname", "id"):
        tool = Path("/usr/bin") / name
        (tmp_path / name).symlink_to(tool)
    ran = subprocess.run(
        ["/bin/bash", str(ROOT / ".ci" / "run")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    assert "Debian's package `chromium`" in ran.stderr
    assert "install" not in ran.stdout
