"""Fits of a study by one Ray Train job; Ray is started only where something is left to fit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from sgpu.runtime.run import Run
from sgpu.runtime.session import ray_session
from sgpu.runtime.train_job import FitResult, FitTask, finished, run_train_job
from sgpu.storage.location import Location

FITS = "fits"


def fit_tasks(run: Run, tasks: Sequence[FitTask]) -> dict[str, FitResult]:
    """The result of every task by its key; finished fits of the same rows and settings are kept."""
    folder = run.root / FITS
    tasks = [replace(task, rows=_kept_rows(run, task)) for task in tasks]
    found = {task.key: kept for task in tasks if (kept := finished(task, folder))}
    due = [task for task in tasks if task.key not in found]
    workers = min(len(due), run.study.resources.fitters)
    with ray_session(run.address) if workers else nullcontext():
        fitted = run_train_job(due, folder, workers)
    results = [*found.values(), *fitted]
    return {result.key: _here(run, result) for result in results}


def local_copy(run: Run, key: str, fit_id: str, fresh: bool = False) -> Path:
    """The folder of a fit on this machine, fetched from object storage unless it is here, or ``fresh``."""
    folder = run.out / FITS / key / fit_id
    if fresh or not folder.is_dir():
        (run.root / FITS / key / fit_id).download(folder)
    return folder


def _here(run: Run, result: FitResult) -> FitResult:
    if result.kept_in is None:
        return result
    return replace(result, folder=local_copy(run, result.key, result.fingerprint, fresh=True))


def _kept_rows(run: Run, task: FitTask) -> Location:
    """The rows where all workers see them."""
    rows = Location.of(task.rows)
    if run.root.is_local:
        return rows
    kept = run.root / FITS / task.key / rows.name
    kept.write_bytes(rows.read_bytes())
    return kept
