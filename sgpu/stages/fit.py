"""Fit stage: every trained method of every cell, and the pooled classifier, by one Ray Train job."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sgpu.gp.heads import OTHERS
from sgpu.gp.persistence import write_json
from sgpu.methods.base import METHODS, TrainedMethod
from sgpu.runtime.run import Run
from sgpu.runtime.train_job import FitResult
from sgpu.stages.bundle import save_bundle
from sgpu.stages.fit_rows import ALL_CELLS, GLOBAL, LOCAL, Prepared, fit_folder, fit_key, prepare
from sgpu.stages.training import FITS, fit_tasks, local_copy
from sgpu.storage.bundle_files import BUNDLE
from sgpu.study.benchmark import Cell

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
    key = fit_key(None if method == GLOBAL else cell, method)
    current = run.root / FITS / key / CURRENT
    if method not in run.study.methods or not current.is_file():
        return None
    content = json.loads(current.read_bytes())
    folder = local_copy(run, key, content["folder"]) if content["folder"] else None
    return Fit(str(cell), method, content["fit_id"], folder, content["problem"])


def fit_cells(run: Run, cells: Sequence[Cell]) -> list[Fit]:
    """Fit what is due on training questions only; finished fits of the same rows are kept."""
    started = time.monotonic()
    prepared = prepare(run, cells, trained_methods(run))
    due = [task for p in prepared for task in (p.task, *p.others.values()) if task]
    results = fit_tasks(run, due)
    found = [results.get(p.task.key) if p.task else None for p in prepared]
    fits = [_finish(run, p, result, results) for p, result in zip(prepared, found, strict=True)]
    for p, result, fit in zip(prepared, found, fits, strict=True):
        took = f"{time.monotonic() - started:.1f} s"
        kept = result is not None and result.reused
        said = fit.problem or ("unchanged, not run again" if kept else took)
        run.progress.say(f"fit      {_subject(fit):<46} {p.rows:>6} rows  {said}")
    return fits


def _subject(fit: Fit) -> str:
    return fit.cell if fit.method in BUNDLED else f"{fit.cell} {fit.method}"


def _finish(run: Run, prepared: Prepared, result: FitResult | None, results: Mapping[str, FitResult]) -> Fit:
    """Make a new classifier a whole bundle, and note which fit is the current one."""
    name = str(prepared.cell or ALL_CELLS)
    if result is None or result.folder is None:
        problem = prepared.problem or (result.problem if result else None)
        fit = Fit(name, prepared.method, "none", None, problem)
    else:
        if prepared.method in BUNDLED:
            others = {place: results[task.key] for place, task in prepared.others.items()}
            save_bundle(run, prepared, result.folder, others)
        fit = Fit(name, prepared.method, result.folder.name, result.folder, None)
    target = fit_folder(run, prepared.cell, prepared.method)
    target.mkdir(parents=True, exist_ok=True)
    content = {**asdict(fit), "folder": fit.folder.name if fit.folder else None}
    write_json(target / CURRENT, content)
    key = target.relative_to(run.out)
    # The bundle's description after all that it describes.
    made = [f"{key}/{fit.folder.name}/{part}" for part in (*OTHERS, BUNDLE)] if fit.folder else []
    run.keep(*made, f"{key}/{CURRENT}")
    return fit
