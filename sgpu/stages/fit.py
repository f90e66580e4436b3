"""Fit stage: every trained method of every cell, and the pooled classifier, by one Ray Train job."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sgpu.gp.persistence import write_json
from sgpu.gp.train_job import FitResult, FitTask, fingerprint, run_train_job
from sgpu.methods.base import METHODS, TrainedMethod
from sgpu.stages.bundle import save_bundle
from sgpu.stages.fit_rows import ALL_CELLS, GLOBAL, LOCAL, Prepared, fit_folder, prepare
from sgpu.stages.run import Run
from sgpu.stages.session import ray_session
from sgpu.study import Cell

CURRENT = "current.json"
METHOD = LOCAL
# What makes a classifier's folder a model that scores answers is added here, after the job.
BUNDLED = (LOCAL, GLOBAL)


@dataclass(frozen=True)
class Fit:
    """The fit of a trained method for a cell (or for all cells) as it stands, or why there is none."""

    cell: str
    method: str
    fit_id: str
    folder: Path | None
    problem: str | None


def trained_methods(run: Run) -> list[str]:
    """The methods of the study that are fitted."""
    return [name for name in run.study.methods if isinstance(METHODS.get(name), TrainedMethod)]


def fit_of(run: Run, cell: Cell, method: str = METHOD) -> Fit | None:
    """The fit that scores a cell, as the last run of `fit_cells` left it; None if there was none."""
    folder = fit_folder(run, None if method == GLOBAL else cell, method)
    if method not in run.study.methods or not (folder / CURRENT).is_file():
        return None
    content = json.loads((folder / CURRENT).read_text())
    kept = content["folder"]
    return Fit(str(cell), method, content["fit_id"], folder / kept if kept else None, content["problem"])


def fit_cells(run: Run, cells: Sequence[Cell]) -> list[Fit]:
    """Fit what is due on training questions only; finished fits of the same rows are kept."""
    started = time.monotonic()
    prepared = prepare(run, cells, trained_methods(run))
    due = [p.task for p in prepared if p.task and not _is_whole(run, p.task)]
    results: dict[str, FitResult] = {}
    if due:
        workers = min(len(due), run.study.resources.fitters)
        if workers:
            with ray_session(run.address):
                found = run_train_job(due, run.out / "fits", workers)
        else:
            found = run_train_job(due, run.out / "fits", 0)
        results = {result.key: result for result in found}
    fits = [_finish(run, p, results.get(p.task.key) if p.task else None) for p in prepared]
    for p, fit in zip(prepared, fits, strict=True):
        again = p.task is not None and p.task.key in results
        took = f"{time.monotonic() - started:.1f} s" if again else "unchanged, not run again"
        run.progress.say(f"fit      {_subject(fit):<46} {p.rows:>6} rows  {fit.problem or took}")
    return fits


def _subject(fit: Fit) -> str:
    return fit.cell if fit.method in BUNDLED else f"{fit.cell} {fit.method}"


def _is_whole(run: Run, task: FitTask) -> bool:
    """Whether the fit of this task is there with everything that is added to it."""
    folder = run.out / "fits" / task.key / fingerprint(task)
    return (folder / task.trainer.description).is_file()


def _finish(run: Run, prepared: Prepared, result: FitResult | None) -> Fit:
    """Make a new classifier a whole bundle, and note which fit is the current one."""
    task, name = prepared.task, str(prepared.cell or ALL_CELLS)
    problem = prepared.problem or (result.problem if result else None)
    if task is None or problem:
        fit = Fit(name, prepared.method, "none", None, problem)
    else:
        folder = run.out / "fits" / task.key / fingerprint(task)
        if prepared.method in BUNDLED:
            save_bundle(run, prepared, folder)
        fit = Fit(name, prepared.method, folder.name, folder, None)
    target = fit_folder(run, prepared.cell, prepared.method)
    target.mkdir(parents=True, exist_ok=True)
    content = {**asdict(fit), "folder": fit.folder.name if fit.folder else None}
    write_json(target / CURRENT, content)
    return fit
