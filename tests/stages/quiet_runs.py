"""Runs that print nothing, and tables of rows that say only what a test is about."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from sgpu.runtime.progress import Progress
from sgpu.stages.run import Run
from sgpu.study.benchmark import Study


def quiet() -> Progress:
    return Progress(Console(file=io.StringIO()))


def quiet_run(study: Any, out: Path, kind: type[Run] = Run) -> Run:
    return kind(Study.model_validate(study), out, quiet())


def table_of(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows with null for what they do not say."""
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)
