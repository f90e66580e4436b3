from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.scoring.nights.nights import model_folder


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("fitted") / "model")


@pytest.fixture
def place(fitted: Path, tmp_path: Path) -> Path:
    """A folder with a model, for logs and tables of one test."""
    shutil.copytree(fitted, tmp_path / "model")
    return tmp_path
