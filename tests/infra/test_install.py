"""`make install` refuses a Python that cannot work before anything is made."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Says it is 3.10 where it is asked; notes whatever else it is told to do.
PRETENDED = "import sys; sys.version_info = (3, 10); exec(sys.argv[1])"
OLD_PYTHON = f"""#!/bin/sh
if [ "$1" = -c ]; then exec {sys.executable} -c '{PRETENDED}' "$2"; fi
echo "$@" >>"$(dirname "$0")/asked"
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / "infra" / "locks").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "infra/locks/cpu.txt"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def old_python(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(OLD_PYTHON)
    path.chmod(0o755)
    return path


def install(clone: Path, *settings: str) -> str:
    """What `make install` says when it fails."""
    command = ["make", "--no-print-directory", "install", *settings]
    ran = subprocess.run(command, cwd=clone, capture_output=True, text=True, timeout=60)
    assert ran.returncode != 0
    return ran.stderr


def test_a_given_python_that_is_too_old_is_named_and_leaves_no_environment(
    clone: Path, tmp_path: Path
) -> None:
    python = old_python(tmp_path / "bin" / "python3.10")
    assert f"{python} is not Python 3.11 or 3.12" in install(clone, f"PYTHON={python}")
    assert not (clone / ".venv").exists()
    assert not (python.parent / "asked").exists()


def test_an_environment_of_another_python_is_refused_before_pip(clone: Path) -> None:
    python = old_python(clone / ".venv" / "bin" / "python")
    assert "another Python than 3.11 or 3.12: make clean" in install(clone)
    assert not (python.parent / "asked").exists()
