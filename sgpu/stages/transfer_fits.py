"""The classifiers of a transfer study: guarded rows in, one forecast for each plan out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sgpu.evaluation.inputs import Floats
from sgpu.gp.classifier import GPClassifier, training_rows
from sgpu.gp.fitting import TrainingRows
from sgpu.gp.persistence import write_training_rows
from sgpu.gp.pooling import Pool as Weighting
from sgpu.gp.pooling import row_weights
from sgpu.stages.cell_frame import LabelledSpectra
from sgpu.stages.fit_rows import MIN_ROWS, too_few
from sgpu.stages.train_job import FitResult, FitTask, run_train_job
from sgpu.study.benchmark import Cell
from sgpu.transfer.designs import Gap, Plan, TrainingPool, admit
from sgpu.transfer.guard import check_report, rule_for
from sgpu.transfer.measure import Forecast
from sgpu.transfer.rows import SourceCell
from sgpu.transfer.selection import Candidate, Representation, fit_representation, row_losses

Losses = Mapping[Candidate, Floats]


@dataclass(frozen=True)
class Due:
    """A classifier to be fitted: its guarded rows, and the settings to choose from.

    ``weights`` (M,) is how much each training row counts, ``cells`` (M,) the number of its cell in order of
    their names; None where all count alike. A point of a learning curve has its ``axis``, ``size`` and
    ``draw``.
    """

    plan: Plan
    pool: TrainingPool
    candidates: Sequence[Candidate]
    weights: Floats | None
    cells: NDArray[np.int64] | None
    axis: str | None
    size: int | None
    draw: int | None

    def represented(self, candidate: Candidate) -> tuple[Representation, TrainingRows]:
        """Return the map that a candidate's representation learns, and the rows that the fit may see."""
        training = self.pool.training
        representation = fit_representation(candidate.representation, training.spectra)
        x = representation(training.spectra)
        return representation, training_rows(x, training.label, self.weights, self.cells)


@dataclass(frozen=True)
class Fitter:
    """How the classifiers of one transfer study are made; equal rows and settings are fitted once.

    Fits are kept in ``folder``, rows of ``cells`` count by ``weighting``.
    """

    folder: Path
    workers: int
    hyper_rows: int
    seed: int
    weighting: Weighting
    cells: Mapping[Cell, SourceCell]

    def prepare(
        self,
        plan: Plan,
        pool: TrainingPool,
        candidates: Sequence[Candidate],
        *,
        axis: str | None = None,
        size: int | None = None,
        draw: int | None = None,
    ) -> Due | Gap:
        """Return the guarded rows of a plan, or why they cannot be fitted. Raises LeakageError."""
        admit(pool, rule_for(plan.design, plan.target, self.cells))
        label = pool.training.label
        if too_few(label.astype(np.int64)):
            classes = f"{int(label.sum())} right and {int((1 - label).sum())} wrong"
            why = f"{len(label)} training rows ({classes}); at least {MIN_ROWS} of both classes are needed"
            return Gap(plan.design, plan.target, f"{plan.method}: {why}")
        cell = np.unique(pool.training.cells.to_numpy(), return_inverse=True)[1].astype(np.int64)
        weights = row_weights(cell, self.weighting)
        cells = None if weights is None else cell
        return Due(plan, pool, candidates, weights, cells, axis, size, draw)

    def fit(self, due: Sequence[Due]) -> list[tuple[Due, dict[Candidate, FitResult]]]:
        """Fit every candidate of every classifier, as one training job."""
        tasks_of = [{option: self._task(item, option) for option in item.candidates} for item in due]
        tasks = {task.key: task for own in tasks_of for task in own.values()}
        results = {
            result.key: result for result in run_train_job(list(tasks.values()), self.folder, self.workers)
        }
        return [
            (item, {candidate: results[task.key] for candidate, task in own.items()})
            for item, own in zip(due, tasks_of, strict=True)
        ]

    def _task(self, due: Due, candidate: Candidate) -> FitTask:
        training = due.represented(candidate)[1]
        content = training.sha256[:16]
        rows = self.folder / "rows" / f"{content}.arrow"
        rows.parent.mkdir(parents=True, exist_ok=True)
        write_training_rows(rows, training)  # anew: what an earlier run left may have been changed since
        settings = {
            "kernel": candidate.kernel, "inducing": candidate.inducing, "hyper_rows": self.hyper_rows,
        }  # fmt: skip
        return FitTask(f"{content}/{candidate.kernel}-{candidate.inducing}", rows, settings, self.seed)

    def losses_of(self, due: Due, fits: Mapping[Candidate, FitResult]) -> dict[Candidate, Floats]:
        """(S,) losses of each candidate on the rows of the selection. Raises LeakageError."""
        losses = {}
        for candidate, fit in fits.items():
            if fit.folder is not None:
                representation, classifier = self._load(due, candidate, fit)
                losses[candidate] = row_losses(classifier, representation, due.pool.validation)
        return losses

    def forecast(
        self, due: Due, fits: Mapping[Candidate, FitResult], losses: Losses | None = None
    ) -> Forecast | Gap:
        """What the one fit of a plan says of all rows of the target. Raises LeakageError."""
        ((chosen, fit),) = fits.items()
        if fit.folder is None:
            return Gap(due.plan.design, due.plan.target, f"{due.plan.method}: {fit.problem}")
        representation, classifier = self._load(due, chosen, fit)
        target = self.cells[due.plan.target]
        rows = LabelledSpectra(target.rows.spectra, target.rows.label, target.split)
        probability = rows.predicted(classifier, representation)
        tried = losses or {}
        record = {
            "sources": [str(cell) for cell in due.plan.sources],
            "chosen": str(chosen),
            "validation_log_loss": {str(c): float(x.mean()) if len(x) else None for c, x in tried.items()},
            "n_train": len(due.pool.training),
            "n_selection": len(next(iter(tried.values()))) if tried else 0,
            "left_out_as_target_questions": due.pool.left_out,
            "fit": fit.fingerprint,
        }
        return Forecast(due.plan, probability, fit.fingerprint, chosen, record, due.axis, due.size, due.draw)

    def _load(self, due: Due, candidate: Candidate, fit: FitResult) -> tuple[Representation, GPClassifier]:
        """Return the map of what the fit sees, and the fit. LeakageError if it was made from other rows."""
        representation, admitted = due.represented(candidate)
        classifier = fit.load()
        check_report(classifier.fit_report, admitted, due.plan.target)
        return representation, classifier
