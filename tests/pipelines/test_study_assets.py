"""How often a whole study asks for its tables, counted on the cell of the golden data."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.benchmark import benchmark_study
from sgpu.storage import store
from tests.golden.case_run import DATA
from tests.golden.cases.benchmark import MADE_AGAIN

GIVEN = DATA / "benchmark" / "given"


def test_a_command_opens_each_table_once_and_reads_its_log_after_its_own_commits_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            asked[name] += 1
            return function(*arguments)

        return call

    for name in ("open_table", "open_or_create", "logged_files"):
        monkeypatch.setattr(store, name, counted(name, getattr(store, name)))
    shutil.copytree(GIVEN / "run", tmp_path / "run")
    for table in MADE_AGAIN:
        shutil.rmtree(tmp_path / "run" / "tables" / table)
    benchmark_study(GIVEN / "study.yaml", tmp_path / "run", [], None)
    assert 10 <= asked["open_table"] + asked["open_or_create"] <= 25
    assert 10 <= asked["logged_files"] <= 25
