"""The classifiers of a transfer study: guarded rows in, one forecast for each plan out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sgpu.evaluation.inputs import Floats
from sgpu.gp.classifier import GPClassifier, training_rows
from sgpu.gp.fitting import TrainingRows
from sgpu.gp.persistence import write_training_rows
from sgpu.gp.pooling import row_weights
from sgpu.stages.cell_frame import LabelledSpectra
from sgpu.stages.fit_rows import MIN_ROWS, classifier_seconds, too_few
from sgpu.stages.train_job import FitResult, FitTask, run_train_job
from sgpu.stages.transfer_sources import TransferRun
from sgpu.transfer.designs import Gap, Plan, TrainingPool
from sgpu.transfer.guard import check_report
from sgpu.transfer.measure import Forecast
from sgpu.transfer.selection import Candidate, Choice, Representation, fit_representation, row_losses

Fits = Mapping[Candidate, FitResult]


@dataclass(frozen=True)
class Due:
    """A classifier to be fitted with the settings to choose from.

    ``make`` returns its rows, which the guard has admitted, anew at each call: all together would take
    gigabytes.
    """

    plan: Plan
    make: Callable[[], TrainingPool]
    candidates: Sequence[Candidate]

    def gap(self, why: str) -> Gap:
        """Return that there is no such classifier, and why."""
        return Gap(self.plan.design, self.plan.target, f"{self.plan.method}: {why}")


def fit_all(run: TransferRun, due: Sequence[Due]) -> list[tuple[Due, Fits | Gap]]:
    """Fit every candidate of every classifier in one training job; equal fits are made once.

    A classifier whose rows cannot be fitted is a gap.
    """
    tasks_of = [_tasks(run, item) for item in due]
    tasks = {task.key: task for own in tasks_of if isinstance(own, dict) for task in own.values()}
    fits = run_train_job(
        list(tasks.values()),
        run.root / "fits",
        run.study.fitters,
        address=run.address,
        progress=run.progress,
    )
    results = {fit.key: fit for fit in fits}
    return [
        (item, own if isinstance(own, Gap) else {one: results[task.key] for one, task in own.items()})
        for item, own in zip(due, tasks_of, strict=True)
    ]


def _tasks(run: TransferRun, due: Due) -> dict[Candidate, FitTask] | Gap:
    pool = due.make()
    label = pool.training.label
    if too_few(label.astype(np.int64)) is None:
        return {option: _task(run, pool, option) for option in due.candidates}
    classes = f"{int(label.sum())} right and {int((1 - label).sum())} wrong"
    return due.gap(f"{len(label)} training rows ({classes}); at least {MIN_ROWS} of both classes are needed")


def _represented(
    run: TransferRun, pool: TrainingPool, candidate: Candidate
) -> tuple[Representation, TrainingRows]:
    """Return the map that a candidate's representation learns, and the rows that the fit may see."""
    training = pool.training
    representation = fit_representation(candidate.representation, training.spectra)
    cell = np.unique(training.cells.to_numpy(), return_inverse=True)[1].astype(np.int64)
    weights = row_weights(cell, run.study.pool)
    cells = None if weights is None else cell
    return representation, training_rows(representation(training.spectra), training.label, weights, cells)


def _task(run: TransferRun, pool: TrainingPool, candidate: Candidate) -> FitTask:
    _, training = _represented(run, pool, candidate)
    content = training.sha256[:16]
    name = f"fits/rows/{content}.arrow"
    (run.out / name).parent.mkdir(parents=True, exist_ok=True)
    # Anew: what an earlier run left may have been changed since.
    write_training_rows(run.out / name, training)
    run.keep(name)
    kernel, inducing = candidate.kernel, candidate.inducing
    settings = {"kernel": kernel, "inducing": inducing, "hyper_rows": run.study.selection.hyper_rows}
    key, seconds = f"{content}/{kernel}-{inducing}", classifier_seconds(len(training.y))
    return FitTask(key, run.root / name, settings, run.study.seed, seconds=seconds)


def losses_of(run: TransferRun, due: Due, fits: Fits) -> dict[Candidate, Floats]:
    """Return the losses (S,) of each candidate on the rows of the selection. Raises LeakageError."""
    losses, pool = {}, due.make()
    for candidate, fit in fits.items():
        if fit.location is not None:
            representation, classifier = _load(run, pool, due.plan, candidate, fit)
            losses[candidate] = row_losses(classifier, representation, pool.validation)
    return losses


def forecast(run: TransferRun, due: Due, fits: Fits, choice: Choice | None) -> Forecast | Gap:
    """Return what the one fit of a plan says of all rows of the target. Raises LeakageError."""
    ((chosen, fit),) = fits.items()
    if fit.location is None:
        return due.gap(str(fit.problem))
    pool = due.make()
    representation, classifier = _load(run, pool, due.plan, chosen, fit)
    target = run.cells[due.plan.target]
    rows = LabelledSpectra(target.rows.spectra, target.rows.label, target.split)
    record = {
        "sources": [str(cell) for cell in due.plan.sources],
        "chosen": str(chosen),
        "validation_log_loss": choice.losses if choice else {},
        "n_train": len(pool.training),
        "n_selection": choice.rows if choice else 0,
        "left_out_as_target_questions": pool.left_out,
        "fit": fit.fingerprint,
    }
    return Forecast(due.plan, rows.predicted(classifier, representation), fit.fingerprint, record)


def _load(
    run: TransferRun, pool: TrainingPool, plan: Plan, candidate: Candidate, fit: FitResult
) -> tuple[Representation, GPClassifier]:
    """Return the map of what the fit sees, and the fit. LeakageError if it was made from other rows."""
    representation, admitted = _represented(run, pool, candidate)
    classifier = fit.load()
    check_report(classifier.fit_report, admitted, plan.target)
    return representation, classifier
