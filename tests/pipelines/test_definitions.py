"""What Dagster's daemon is told by the environment."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from pipelines import definitions


@pytest.mark.parametrize(("given", "address"), [("auto", "auto"), ("", None)])
def test_the_daemon_works_on_the_cluster_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, address: str | None
) -> None:
    monkeypatch.setenv("SGPU_OUT", str(tmp_path))
    monkeypatch.setenv("SGPU_ADDRESS", given)
    resources = importlib.reload(definitions).defs.resources
    assert resources is not None and resources["study"].address == address
