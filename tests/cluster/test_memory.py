"""A stage's driver and ledger need no more memory for twice the rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]


def measure(folder: Path, rows: int) -> int:
    """Return the MiB by which they grow over three stages of so many rows."""
    script = [sys.executable, str(ROOT / "tests/cluster/many_rows.py"), str(folder), str(rows)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_memory_does_not_follow_the_rows(tmp_path: Path) -> None:
    once, twice = (measure(tmp_path / f"{rows}", rows) for rows in (1_000_000, 2_000_000))
    assert twice < 256 and twice <= 1.2 * once
