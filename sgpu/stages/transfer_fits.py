"""The classifiers of a transfer study: guarded rows in, one forecast for each plan out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sgpu.evaluation.inputs import Floats
from sgpu.gp.classifier import GPClassifier, training_rows
from sgpu.gp.fitting import TrainingRows
from sgpu.gp.persistence import write_training_rows
from sgpu.gp.pooling import row_weights
from sgpu.stages.cell_frame import LabelledSpectra
from sgpu.stages.fit_rows import MIN_ROWS, too_few
from sgpu.stages.train_job import FitResult, FitTask, run_train_job
from sgpu.stages.transfer_sources import TransferRun
from sgpu.transfer.designs import Gap, Plan, TrainingPool
from sgpu.transfer.guard import check_report
from sgpu.transfer.measure import Forecast
from sgpu.transfer.selection import Candidate, Representation, fit_representation, row_losses

Losses = Mapping[Candidate, Floats]


@dataclass(frozen=True)
class Due:
    """A classifier to be fitted: its rows, which the guard has admitted, and the settings to choose from."""

    plan: Plan
    pool: TrainingPool
    candidates: Sequence[Candidate]

    @property
    def problem(self) -> str | None:
        """Why the rows cannot be fitted; None if they can."""
        label = self.pool.training.label
        if too_few(label.astype(np.int64)) is None:
            return None
        classes = f"{int(label.sum())} right and {int((1 - label).sum())} wrong"
        return f"{len(label)} training rows ({classes}); at least {MIN_ROWS} of both classes are needed"

    def gap(self, why: str) -> Gap:
        """Return that there is no such classifier, and why."""
        return Gap(self.plan.design, self.plan.target, f"{self.plan.method}: {why}")


def fit_all(run: TransferRun, due: Sequence[Due]) -> list[tuple[Due, dict[Candidate, FitResult]]]:
    """Fit every candidate of every classifier in one training job; equal fits are made once."""
    tasks_of = [{option: _task(run, item, option) for option in item.candidates} for item in due]
    tasks = {task.key: task for own in tasks_of for task in own.values()}
    fits = run_train_job(list(tasks.values()), run.out / "fits", run.study.fitters)
    results = {fit.key: fit for fit in fits}
    return [
        (item, {candidate: results[task.key] for candidate, task in own.items()})
        for item, own in zip(due, tasks_of, strict=True)
    ]


def _represented(run: TransferRun, due: Due, candidate: Candidate) -> tuple[Representation, TrainingRows]:
    """Return the map that a candidate's representation learns, and the rows that the fit may see."""
    training = due.pool.training
    representation = fit_representation(candidate.representation, training.spectra)
    cell = np.unique(training.cells.to_numpy(), return_inverse=True)[1].astype(np.int64)
    weights = row_weights(cell, run.study.pool)
    cells = None if weights is None else cell
    return representation, training_rows(representation(training.spectra), training.label, weights, cells)


def _task(run: TransferRun, due: Due, candidate: Candidate) -> FitTask:
    _, training = _represented(run, due, candidate)
    content = training.sha256[:16]
    rows = run.out / "fits" / "rows" / f"{content}.arrow"
    rows.parent.mkdir(parents=True, exist_ok=True)
    write_training_rows(rows, training)  # anew: what an earlier run left may have been changed since
    kernel, inducing = candidate.kernel, candidate.inducing
    settings = {"kernel": kernel, "inducing": inducing, "hyper_rows": run.study.selection.hyper_rows}
    return FitTask(f"{content}/{kernel}-{inducing}", rows, settings, run.study.seed)


def losses_of(run: TransferRun, due: Due, fits: Mapping[Candidate, FitResult]) -> dict[Candidate, Floats]:
    """Return the losses (S,) of each candidate on the rows of the selection. Raises LeakageError."""
    losses = {}
    for candidate, fit in fits.items():
        if fit.folder is not None:
            representation, classifier = _load(run, due, candidate, fit)
            losses[candidate] = row_losses(classifier, representation, due.pool.validation)
    return losses


def forecast(
    run: TransferRun, due: Due, fits: Mapping[Candidate, FitResult], losses: Losses
) -> Forecast | Gap:
    """Return what the one fit of a plan says of all rows of the target. Raises LeakageError."""
    ((chosen, fit),) = fits.items()
    if fit.folder is None:
        return due.gap(str(fit.problem))
    representation, classifier = _load(run, due, chosen, fit)
    target = run.cells[due.plan.target]
    rows = LabelledSpectra(target.rows.spectra, target.rows.label, target.split)
    record = {
        "sources": [str(cell) for cell in due.plan.sources],
        "chosen": str(chosen),
        "validation_log_loss": {str(c): float(x.mean()) if len(x) else None for c, x in losses.items()},
        "n_train": len(due.pool.training),
        "n_selection": len(next(iter(losses.values()), ())),
        "left_out_as_target_questions": due.pool.left_out,
        "fit": fit.fingerprint,
    }
    return Forecast(due.plan, rows.predicted(classifier, representation), fit.fingerprint, record)


def _load(
    run: TransferRun, due: Due, candidate: Candidate, fit: FitResult
) -> tuple[Representation, GPClassifier]:
    """Return the map of what the fit sees, and the fit. LeakageError if it was made from other rows."""
    representation, admitted = _represented(run, due, candidate)
    classifier = fit.load()
    check_report(classifier.fit_report, admitted, due.plan.target)
    return representation, classifier
