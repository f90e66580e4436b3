"""Per-cell files to read: the paper's, and small ones whose means are plain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import sgpu.report.study.published

PUBLISHED = Path(sgpu.report.study.published.__file__).parent.parent / "published"
HEADER = "dataset,model,method,auroc,auarc_20,ece"


@pytest.fixture
def paper_file() -> Path:
    return PUBLISHED / "summary.csv"


@pytest.fixture
def write_cells(tmp_path: Path) -> Callable[..., Path]:
    """Write lines beneath the usual header (or another) and return the file."""

    def write(*lines: str, header: str = HEADER) -> Path:
        path = tmp_path / "cells.csv"
        path.write_text("\n".join([header, *lines]) + "\n", "utf-8")
        return path

    return write
