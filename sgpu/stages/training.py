"""Fits of a study by one Ray Train job; Ray is started only where something is left to fit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from sgpu.gp.train_job import FitResult, FitTask, finished, run_train_job
from sgpu.stages.run import Run
from sgpu.stages.session import ray_session


def fit_tasks(run: Run, tasks: Sequence[FitTask]) -> dict[str, FitResult]:
    """The result of every task by its key; finished fits of the same rows and settings are kept."""
    folder = run.out / "fits"
    found = {task.key: kept for task in tasks if (kept := finished(task, folder))}
    due = [task for task in tasks if task.key not in found]
    workers = min(len(due), run.study.resources.fitters)
    with ray_session(run.address) if workers else nullcontext():
        fitted = run_train_job(due, folder, workers)
    return found | {result.key: result for result in fitted}
