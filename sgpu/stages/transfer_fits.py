"""The classifiers of a transfer study: guarded rows in, one forecast for each plan out."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sgpu.evaluation.inputs import Floats
from sgpu.gp.classifier import POINTS, GPClassifier
from sgpu.gp.fitting import TrainingRows
from sgpu.gp.persistence import NAME, read_files, read_pool, write_training_rows
from sgpu.gp.pooling import Pool as Weighting
from sgpu.gp.pooling import row_weights
from sgpu.stages.cell_frame import LabelledSpectra
from sgpu.stages.fit_rows import MIN_ROWS, too_few
from sgpu.stages.train_job import FitResult, FitTask, fingerprint, run_train_job
from sgpu.storage.location import Location
from sgpu.study.benchmark import Cell
from sgpu.transfer.designs import Gap, Plan, Pool, Uses, cells_of, guarded, uses_of
from sgpu.transfer.guard import LeakageError, check_points, check_report, rule_for
from sgpu.transfer.measure import Forecast
from sgpu.transfer.rows import SourceCell
from sgpu.transfer.selection import Candidate, Representation, fit_representation, row_losses

Losses = Mapping[Candidate, Floats]


@dataclass(frozen=True)
class Due:
    """A classifier to be fitted: its guarded rows, and the settings to choose from.

    ``cell`` (M,) is the number of each training row's cell, in order of their names; ``weights`` (M,) is how
    much each row counts, None where all count alike. A point of a learning curve has its ``axis``, ``size``
    and ``draw``.
    """

    plan: Plan
    uses: Uses
    candidates: Sequence[Candidate]
    cell: NDArray[np.int64]
    weights: Floats | None
    left_out: int
    axis: str | None
    size: int | None
    draw: int | None

    def represented(self, candidate: Candidate) -> tuple[Representation, NDArray[np.float64]]:
        """The map that a candidate's representation learns, and what the fit sees (M, N)."""
        representation = fit_representation(candidate.representation, self.uses.standardisation.spectra)
        return representation, representation(self.uses.training.spectra)


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
        pool: Pool,
        candidates: Sequence[Candidate],
        *,
        axis: str | None = None,
        size: int | None = None,
        draw: int | None = None,
    ) -> Due | Gap:
        """The guarded rows of a plan, or why they cannot be fitted. Raises LeakageError."""
        uses = guarded(uses_of(pool), rule_for(plan.design, plan.target, self.cells))
        label = uses.training.label
        if too_few(label.astype(np.int64)):
            classes = f"{int(label.sum())} right and {int((1 - label).sum())} wrong"
            why = f"{len(label)} training rows ({classes}); at least {MIN_ROWS} of both classes are needed"
            return Gap(plan.design, plan.target, f"{plan.method}: {why}")
        cell = np.unique(cells_of(uses.training).to_numpy(), return_inverse=True)[1].astype(np.int64)
        weights = row_weights(cell, self.weighting)
        return Due(plan, uses, candidates, cell, weights, pool.left_out, axis, size, draw)

    def fit(self, due: Sequence[Due]) -> list[tuple[Due, dict[Candidate, FitResult]]]:
        """Every candidate of every classifier, as one training job.

        Raises LeakageError if a file holds other rows than the guard let pass, now or when it was fitted,
        DataError if one cannot be read.
        """
        tasks_of = [{option: self._task(item, option) for option in item.candidates} for item in due]
        tasks = {task.key: task for own in tasks_of for task in own.values()}
        _check_files(tasks.values())
        results = {
            result.key: result for result in run_train_job(list(tasks.values()), self.folder, self.workers)
        }
        _check_files(tasks.values())
        for key, task in tasks.items():
            if results[key].fingerprint != fingerprint(task):
                raise _other_rows(task.rows)
        return [
            (item, {candidate: results[task.key] for candidate, task in own.items()})
            for item, own in zip(due, tasks_of, strict=True)
        ]

    def _task(self, due: Due, candidate: Candidate) -> FitTask:
        training = TrainingRows(
            np.ascontiguousarray(due.represented(candidate)[1]),
            due.uses.training.label.astype(np.int64),
            due.weights,
            None if due.weights is None else due.cell,
        )
        content = _content(training)
        rows = self.folder / "rows" / f"{content}.arrow"
        if not rows.is_file():
            rows.parent.mkdir(parents=True, exist_ok=True)
            write_training_rows(rows, training)
        settings = {
            "kernel": candidate.kernel, "inducing": candidate.inducing, "hyper_rows": self.hyper_rows,
        }  # fmt: skip
        return FitTask(f"{content}/{candidate.kernel}-{candidate.inducing}", rows, settings, self.seed)

    def losses_of(self, due: Due, fits: Mapping[Candidate, FitResult]) -> dict[Candidate, Floats]:
        """(S,) losses of each candidate on the rows of the selection. Raises LeakageError."""
        losses = {}
        for candidate, fit in fits.items():
            if fit.folder is not None:
                representation, classifier = self._loaded(due, candidate, fit, fit.folder)
                losses[candidate] = row_losses(classifier, representation, due.uses.selection)
        return losses

    def forecast(
        self, due: Due, fits: Mapping[Candidate, FitResult], losses: Losses | None = None
    ) -> Forecast | Gap:
        """What the one fit of a plan says of all rows of the target. Raises LeakageError."""
        ((chosen, fit),) = fits.items()
        if fit.folder is None:
            return Gap(due.plan.design, due.plan.target, f"{due.plan.method}: {fit.problem}")
        representation, classifier = self._loaded(due, chosen, fit, fit.folder)
        target = self.cells[due.plan.target]
        rows = LabelledSpectra(target.rows.spectra, target.rows.label, target.split)
        probability = rows.predicted(classifier, representation)
        tried = losses or {}
        record = {
            "sources": [str(cell) for cell in due.plan.sources],
            "chosen": str(chosen),
            "validation_log_loss": {str(c): float(x.mean()) if len(x) else None for c, x in tried.items()},
            "n_train": len(due.uses.training),
            "n_selection": len(next(iter(tried.values()))) if tried else 0,
            "left_out_as_target_questions": due.left_out,
            "fit": fit.fingerprint,
        }
        return Forecast(due.plan, probability, fit.fingerprint, chosen, record, due.axis, due.size, due.draw)

    def _loaded(
        self, due: Due, candidate: Candidate, fit: FitResult, folder: Path
    ) -> tuple[Representation, GPClassifier]:
        """The fit and the map of what it sees, after a look at what it was made from."""
        representation, _ = due.represented(candidate)
        classifier = fit.load()
        check_report(classifier.fit_report, due.uses.training.label, due.plan.target, due.weights)
        if not classifier.fit_report.degenerate:
            _, numbers = read_files(folder, NAME)
            admitted = representation(due.uses.inducing_points.spectra)
            check_points(
                numbers[POINTS], admitted, candidate.inducing, self.seed, due.plan.target, due.weights
            )
        return representation, classifier


def _content(rows: TrainingRows) -> str:
    """A name for training rows by all their numbers."""
    parts = [rows.x, rows.y, rows.weights, rows.cells]
    shapes = [None if part is None else (part.dtype.str, part.shape) for part in parts]
    digest = hashlib.sha256(repr(shapes).encode())
    for part in parts:
        if part is not None:
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def _check_files(tasks: Collection[FitTask]) -> None:
    """LeakageError unless every file holds the rows that it is named for; DataError if it cannot be read.

    Rows whose spectra stand in a file already would move no inducing point and show nowhere else.
    """
    for file in sorted({Path(str(task.rows)) for task in tasks}):
        if _content(read_pool(file)) != file.stem:
            raise _other_rows(file)


def _other_rows(file: Path | Location) -> LeakageError:
    return LeakageError(
        f"leak into the training rows: {file} holds, or held when it was fitted, other rows than the guard "
        "let pass. Remove the folder of fits and run again."
    )
