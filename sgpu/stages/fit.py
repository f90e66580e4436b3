"""Fit stage: every trained method of every cell, and the pooled classifier, by one Ray Train job or here.

Ray is started only where something is left to fit, for more than one worker or on a cluster. A fitted
classifier is made a model that scores answers: with its encoder, N and where it comes from.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sgpu.encoders import encoder_fingerprint
from sgpu.fitted.model import CONTENT, FittedModel
from sgpu.fitted.spectrum_classifier import SpectrumClassifier
from sgpu.gp.classifier import GPClassifier
from sgpu.gp.content import ContentClassifier
from sgpu.gp.heads import OTHERS, OtherSizes
from sgpu.gp.persistence import write_json
from sgpu.methods.base import METHODS, TrainedMethod
from sgpu.provenance import code_version
from sgpu.stages.fit_rows import ALL_CELLS, GLOBAL, LOCAL, PLUS, Prepared, fit_folder, fit_key, prepare_fits
from sgpu.stages.run import Run
from sgpu.stages.train_job import FitResult, FitTask, run_train_job
from sgpu.storage.bundle_files import BUNDLE
from sgpu.storage.location import Location
from sgpu.study.benchmark import Cell

FITS = "fits"
CURRENT = "current.json"
METHOD = LOCAL
# What makes a classifier's folder a model that scores answers is added here, after the job.
BUNDLED = (LOCAL, GLOBAL)


def fit_tasks(run: Run, tasks: Sequence[FitTask]) -> dict[str, FitResult]:
    """Return the result of every task by its key; finished fits of the same rows and settings are kept."""
    results = run_train_job(
        tasks, run.root / FITS, run.study.resources.fitters, address=run.address, progress=run.progress
    )
    return {result.key: _local_result(run, result) for result in results}


def local_copy(run: Run, key: str, fit_id: str, fresh: bool = False) -> Path:
    """The folder of a fit on this machine, fetched from object storage unless it is here, or ``fresh``."""
    folder = run.out / FITS / key / fit_id
    if fresh or not folder.is_dir():
        (run.root / FITS / key / fit_id).download(folder)
    return folder


def _local_result(run: Run, result: FitResult) -> FitResult:
    if result.location is None or result.location.is_local:
        return result
    return replace(result, location=Location.of(local_copy(run, result.key, result.fingerprint, fresh=True)))


def save_bundle(
    run: Run, prepared: Prepared, folder: Path, others: Mapping[str, FitResult], plus: FitResult | None = None
) -> None:
    """Complete the folder of a fit, unless it is complete with these fits.

    ``others`` are for other numbers of answers, ``plus`` is the fit to agreement on content.
    """
    fitted = {path: result for path, result in others.items() if result.problem is None}
    ids = {path: result.fingerprint for path, result in sorted(fitted.items())}
    for path, result in others.items():
        if result.problem:
            run.notes.append(f"{prepared.cell or ALL_CELLS}, {path}: {result.problem}")
    content = plus.fingerprint if plus and plus.folder else None
    if _is_complete(folder, ids, content):
        return
    for part in (*OTHERS, CONTENT):
        shutil.rmtree(folder / part, ignore_errors=True)
    study, dtype = run.study, _encoder_dtype(run, prepared)
    FittedModel(
        SpectrumClassifier(
            gp=GPClassifier.load(folder),
            encoder=study.encoder.name,
            encoder_dtype=dtype,
            n_answers=prepared.inputs[0].n,
            encoder_fingerprint=encoder_fingerprint(study.encoder.name),
            others=OtherSizes.of({path: fit.load() for path, fit in fitted.items()}),
        ),
        embed=prepared.inputs[0].embed if len({inputs.embed for inputs in prepared.inputs}) == 1 else "full",
        provenance={
            "study": study.name,
            "method": prepared.method,
            **_trained_on(prepared),
            "rows": prepared.rows,
            "seed": study.seed,
            "pool": study.classifier.pool if prepared.cell is None else None,
            "other_n": ids,
            "content": content,
            "tables": [version for inputs in prepared.inputs for version in inputs.versions],
            "code_version": code_version(),
        },
        content=ContentClassifier.load(plus.folder) if plus and plus.folder else None,
    ).save(folder)


def _is_complete(folder: Path, others: Mapping[str, str], content: str | None) -> bool:
    written = Location.of(folder / BUNDLE).read_json()
    made_of = written["provenance"] if written else {}
    return bool(made_of) and (made_of.get("other_n", {}), made_of.get("content")) == (others, content)


def _trained_on(prepared: Prepared) -> dict[str, Any]:
    judges = sorted({inputs.judge for inputs in prepared.inputs})
    judge = judges[0] if len(judges) == 1 else judges
    if prepared.cell is not None:
        return {"model": prepared.cell.model, "dataset": prepared.cell.dataset, "judge": judge}
    cells = [str(inputs.responses.partition) for inputs in prepared.inputs]
    return {"cells": cells, "judge": judge}


def _encoder_dtype(run: Run, prepared: Prepared) -> str:
    """The precision that the spectra were made with, where all agree."""
    dtypes = {
        dtype
        for inputs in prepared.inputs
        for dtype in inputs.spectra.read(["encoder_dtype"])["encoder_dtype"].to_pylist()
        if dtype
    }
    return str(dtypes.pop()) if len(dtypes) == 1 else run.study.encoder.dtype


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


def fit_of(run: Run, cell: Cell, method: str = LOCAL) -> Fit | None:
    """The fit that scores a cell, as the last run of `fit_cells` left it; None if there was none."""
    key = fit_key(None if method == GLOBAL else cell, method)
    current = run.root / FITS / key / CURRENT
    content = current.read_json() if method in run.study.methods else None
    if content is None:
        return None
    folder = local_copy(run, key, content["folder"]) if content["folder"] else None
    return Fit(str(cell), method, content["fit_id"], folder, content["problem"])


def fit_cells(run: Run, cells: Sequence[Cell]) -> list[Fit]:
    """Fit what is due on training questions only; finished fits of the same rows are kept."""
    started = time.monotonic()
    prepared = prepare_fits(run, cells, trained_methods(run))
    due = [task for p in prepared for task in (p.task, *p.others.values()) if task]
    results = fit_tasks(run, due)
    fits = []
    for p in prepared:
        result = results.get(p.task.key) if p.task else None
        fit = _finish(run, p, result, results)
        unchanged = result is not None and result.reused
        status = "unchanged, not run again" if unchanged else f"{time.monotonic() - started:.1f} s"
        outcome = f"not fitted: {fit.problem}" if fit.problem else f"{p.rows:>6} rows  {status}"
        subject = fit.cell if fit.method in BUNDLED else f"{fit.cell} {fit.method}"
        run.progress.say(f"fit      {subject:<46} {outcome}")
        fits.append(fit)
    return fits


def _finish(run: Run, prepared: Prepared, result: FitResult | None, results: Mapping[str, FitResult]) -> Fit:
    """Make a new classifier a whole bundle, and note which fit is the current one."""
    name = str(prepared.cell or ALL_CELLS)
    if result is None or result.folder is None:
        problem = prepared.problem or (result.problem if result else None)
        fit = Fit(name, prepared.method, "none", None, problem)
    else:
        if prepared.method in BUNDLED:
            others = {path: results[task.key] for path, task in prepared.others.items()}
            plus = results.get(fit_key(prepared.cell, PLUS)) if prepared.method == LOCAL else None
            save_bundle(run, prepared, result.folder, others, plus)
        fit = Fit(name, prepared.method, result.folder.name, result.folder, None)
    target = fit_folder(run, prepared.cell, prepared.method)
    target.mkdir(parents=True, exist_ok=True)
    content = {**asdict(fit), "folder": fit.folder.name if fit.folder else None}
    write_json(target / CURRENT, content)
    key = target.relative_to(run.out)
    # The bundle's description after all that it describes.
    parts = [f"{key}/{fit.folder.name}/{part}" for part in (*OTHERS, CONTENT, BUNDLE)] if fit.folder else []
    run.keep(*parts, f"{key}/{CURRENT}")
    return fit
