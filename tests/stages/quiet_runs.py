"""Runs that print nothing, and tables of rows that say only what a test is about."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from sgpu.runtime.progress import Progress
from sgpu.runtime.stage import Outcome, Stage
from sgpu.stages.run import Run
from sgpu.study.benchmark import Cell, Study


def quiet() -> Progress:
    return Progress(Console(file=io.StringIO()))


def quiet_run(study: Any, out: Path, kind: type[Run] = Run) -> Run:
    return kind(Study.model_validate(study), out, quiet())


def do(plan: Callable[[Run, Cell], list[Stage]], run: Run, cell: Cell) -> Any:
    """Run what a plan has for a cell; return the first outcome, None without one."""
    outcomes: list[Outcome] = run.run_stages(plan(run, cell))
    return outcomes[0] if outcomes else None


def table_of(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows with null for what they do not say."""
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)
