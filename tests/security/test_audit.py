"""`make audit` succeeds only if every package was looked up and nothing is known against any."""

from __future__ import annotations

import importlib.util
import json
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.security.forbidden_code import ROOT

TODAY = date(2026, 11, 22)
SOUND = {"name": "numpy", "version": "2.3.5", "vulns": []}
UNSOUND = {"name": "pillow", "version": "12.0.0", "vulns": [{"id": "CVE-1", "fix_versions": ["12.0.1"]}]}
UNKNOWN = {"name": "torch", "skip_reason": "Dependency not found on PyPI"}
PIP_AUDIT = """
import json, os, sys
from pathlib import Path
here = Path(__file__).parent
(here / "arguments.json").write_text(json.dumps(sys.argv[1:]))
print((here / "output.txt").read_text())
sys.exit(1 if "CVE" in (here / "output.txt").read_text() else 0)
"""


@pytest.fixture
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "infra" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pip_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pip-audit that says what stands in output.txt."""
    folder = tmp_path / "pip_audit"
    folder.mkdir()
    (folder / "__main__.py").write_text(PIP_AUDIT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return folder


def code(audit: ModuleType, pip_audit: Path, output: Any, exceptions: str = "") -> int:
    text = output if isinstance(output, str) else json.dumps({"dependencies": output, "fixes": []})
    (pip_audit / "output.txt").write_text(text)
    listed = pip_audit / "exceptions.txt"
    listed.write_text(exceptions)
    return int(audit.main(["infra/locks/cpu.txt"], TODAY, listed))


def test_packages_without_fault_are_a_success(audit: ModuleType, pip_audit: Path) -> None:
    assert code(audit, pip_audit, [SOUND]) == 0
    arguments = json.loads((pip_audit / "arguments.json").read_text())
    assert {"--no-deps", "--disable-pip", "infra/locks/cpu.txt"} <= set(arguments)


def test_a_known_vulnerability_is_told_with_its_remedy(
    audit: ModuleType, pip_audit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(audit, pip_audit, [SOUND, UNSOUND, UNKNOWN]) == 1
    assert "pillow 12.0.0: CVE-1, fixed in 12.0.1" in capsys.readouterr().err


def test_a_package_that_was_not_looked_up_is_no_success(
    audit: ModuleType, pip_audit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(audit, pip_audit, [SOUND, UNKNOWN]) == 3
    assert "1 of 2 packages could not be looked up" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["", "Traceback", "[]", "{}", "null"])
def test_a_pip_audit_that_says_nothing_is_no_success(audit: ModuleType, pip_audit: Path, output: str) -> None:
    assert code(audit, pip_audit, output) == 3


def test_an_exception_is_handed_on(audit: ModuleType, pip_audit: Path) -> None:
    listed = "# why\n\nCVE-1 2027-01-31 only the server is concerned\n"
    assert code(audit, pip_audit, [SOUND], listed) == 0
    arguments = json.loads((pip_audit / "arguments.json").read_text())
    assert arguments[arguments.index("--ignore-vuln") + 1] == "CVE-1"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("CVE-1", "write `ID YYYY-MM-DD reason`"),
        ("CVE-1 soon it is harmless", "write `ID YYYY-MM-DD reason`"),
        ("CVE-1 2027-01-31", "no reason"),
        ("CVE-1 2026-11-22 it is harmless", "thought of again"),
    ],
)
def test_an_exception_without_reason_or_past_its_day_is_refused(
    line: str, told: str, audit: ModuleType, pip_audit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(audit, pip_audit, [SOUND], line) == 2
    assert told in capsys.readouterr().err


def test_our_own_exceptions_are_well_formed(audit: ModuleType) -> None:
    lines = audit.EXCEPTIONS.read_text().splitlines()
    assert audit.read_exceptions(lines, date(2000, 1, 1))[1] == []
