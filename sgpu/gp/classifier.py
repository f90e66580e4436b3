"""The classifier: spectra in, calibrated probabilities of a right answer out."""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import polygamma
from torch import Tensor

from sgpu.errors import DataError, IntegrityError, TrainingError, UsageError
from sgpu.gp.fitting import DTYPES, FitReport, GPSettings, TrainingRows, constant_report, fit_sparse_gp
from sgpu.gp.inference import SparseGP
from sgpu.gp.kernels import KERNELS
from sgpu.gp.logistic import Recalibration, sigmoid_moments
from sgpu.gp.persistence import NAME, read_files, refuse_code, write_files
from sgpu.gp.pooling import checked_weights
from sgpu.registry import unknown_name

PREDICTION_ROWS = 4096
POINTS, VECTOR, MATRIX = "inducing_points", "natural_vec", "natural_mat"
HYPERPARAMETERS, COUNTS = "log_hyperparameters", "counts"


class Prediction(NamedTuple):
    """Arrays (Q,): probability that the answers are right, its standard deviation, and what they come from.

    ``sd`` is the standard deviation of s(f) under the latent posterior f ~ N(latent_mean,
    latent_variance), s the logistic function. ``unsafe`` is |probability - 0.5| <= sd / 2: a coin flip
    within the model's own uncertainty.
    """

    probability: NDArray[np.float64]
    sd: NDArray[np.float64]
    latent_mean: NDArray[np.float64]
    latent_variance: NDArray[np.float64]
    unsafe: NDArray[np.bool_]


class GPClassifier:
    """Sparse variational Gaussian-process classifier on raw eigenvalues (the paper's SGPU).

    ``kernel``: "matern05", "matern15", "matern25" or "rbf", isotropic, "linear", "linear_matern15", or
    that of a plug-in. ``spectra``: whether rows are eigenvalues, which are clamped at 0 and sorted, largest
    first; other columns are taken as they are. ``inducing``: at most so many inducing points; 128 is as good
    as exact to 1e-4 nats per row up to 10 000 rows, take 256 for pooled data.
    ``dtype``: "float64", or "float32" at half the time for large fits. ``hyper_rows``: the hyper-parameters
    are searched on at most so many rows. Equal arguments and rows give bitwise equal fits; no global
    generator or setting is used. Raises UsageError for a setting that does not exist.
    """

    def __init__(
        self,
        kernel: str = "matern15",
        inducing: int = 128,
        dtype: str = "float64",
        seed: int = 0,
        hyper_rows: int = 3000,
        spectra: bool = True,
    ) -> None:
        KERNELS.check(kernel)
        if dtype not in DTYPES:
            raise UsageError(unknown_name("dtype", dtype, sorted(DTYPES)))
        if inducing < 1 or hyper_rows < 2:
            raise UsageError(f"inducing is {inducing}, hyper_rows {hyper_rows}; at least 1 and 2 are needed")
        self.settings = GPSettings(kernel, inducing, dtype, seed, hyper_rows, spectra)
        self._report: FitReport | None = None
        self._numbers: dict[str, Tensor] = {}
        self._model: SparseGP | None = None
        self.recalibration = Recalibration()

    @property
    def fit_report(self) -> FitReport:
        """What the last fit did; TrainingError before the first."""
        if self._report is None:
            raise TrainingError("this classifier is not fitted; call fit(X, y) or GPClassifier.load(folder)")
        return self._report

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        weights: ArrayLike | None = None,
        cells: NDArray[Any] | None = None,
        device: str = "cpu",
    ) -> GPClassifier:
        """Fit spectra X (M, N) and labels y (M,) in {0, 1} on a ``device`` of PyTorch's; return self.

        A GPU pays for a pool of several 100,000 rows; its sums round differently, so that the fit is equal to
        that of the CPU up to about 1e-4 in probability. What is fitted predicts on the CPU.

        A row of weight w counts as w equal rows that follow each other. Where the hyper-parameters are
        searched on a part of the rows, every one of ``cells`` (M,) keeps its share, see `sgpu.gp.pooling`;
        with cells, the rows of that part may differ between a weight and equal rows.

        Eigenvalues are clamped because rounding makes some slightly negative. Rows of one class are no
        training set: the classifier then predicts the constant (ones + 1) / (M + 2) with the moments of its
        Beta posterior, and `fit_report.degenerate` is True. Raises DataError for rows or labels that cannot
        be used, TrainingError if the numerics fail.
        """
        rows = training_rows(X, y, weights, cells, self.settings.spectra)
        self._report, self._numbers, self._model = None, {}, None
        self.recalibration = Recalibration()
        if len(np.unique(rows.y)) < 2:
            counts = np.bincount(rows.y, rows.weights, minlength=2)
            self._numbers = {COUNTS: torch.as_tensor(counts)}
            self._report = constant_report(rows, "one class only: nothing to fit")
            return self
        with torch.enable_grad():
            model, report = fit_sparse_gp(rows, self.settings, device)
        # Rebuilt from the numbers that are saved, so that a reloaded classifier predicts bitwise the same.
        self._numbers = _numbers_of(model)
        self._model = _model_of(self.settings.kernel, self._numbers)
        self._report = report
        if not np.isfinite(self.predict(rows.x[:PREDICTION_ROWS]).latent_mean).all():
            self._report = None
            raise TrainingError(f"the fit of {len(rows)} rows predicts values that are not finite")
        return self

    def predict(self, X: ArrayLike) -> Prediction:
        """Predict spectra X (Q, N), N as in training; Q may be 0.

        Raises DataError for rows that cannot be used, TrainingError before a fit.
        """
        features = self.fit_report.features
        x = _rows(X, self.settings.spectra)
        if x.shape[1] != features:
            raise DataError(
                f"spectra of {x.shape[1]} eigenvalues, but the classifier was fitted to {features}: "
                "sample as many answers as in training"
            )
        if self._model is None:
            return self._constant(len(x))
        mean, variance = self.recalibration.apply(*_latent(self._model, x))
        probability, sd = sigmoid_moments(mean, variance)
        return Prediction(probability, sd, mean, variance, np.abs(probability - 0.5) <= sd / 2)

    def recalibrate(self, X: ArrayLike, y: ArrayLike) -> GPClassifier:
        """Return this classifier with its latent function on a line that labels y (M,) of rows X (M, N) give.

        It is that of the fit, not of an earlier recalibration. Raises DataError as `fit` does and for a
        classifier that was fitted to one class and so ranks nothing.
        """
        rows = training_rows(X, y, spectra=self.settings.spectra)
        if self.fit_report.degenerate:
            raise DataError("the classifier was fitted to one class only; fit it to rows of both")
        changed = copy(self)
        changed.recalibration = Recalibration()
        before = changed.predict(rows.x)
        changed.recalibration = Recalibration.fit(
            before.latent_mean, before.latent_variance, rows.y.astype(np.float64)
        )
        return changed

    def _constant(self, rows: int) -> Prediction:
        zeros, ones = self._numbers[COUNTS].tolist()
        a, b = ones + 1, zeros + 1  # of the Beta distribution of the rate
        rate, rate_sd = a / (a + b), np.sqrt(a * b / (a + b + 1)) / (a + b)
        # The logit of a Beta variate: mean and variance are differences and sums of polygammas.
        logit_mean = polygamma(0, a) - polygamma(0, b)
        logit_variance = polygamma(1, a) + polygamma(1, b)
        moments = (rate, rate_sd, logit_mean, logit_variance)
        probability, sd, mean, variance = (np.full(rows, float(moment)) for moment in moments)
        return Prediction(probability, sd, mean, variance, np.abs(probability - 0.5) <= sd / 2)

    def save(self, folder: Path | str) -> None:
        """Write `gp.safetensors` and `gp.json` to a folder; equal fits write equal bytes."""
        description = {
            "settings": asdict(self.settings),
            "report": asdict(replace(self.fit_report, seconds=None)),
            "shapes": {name: list(value.shape) for name, value in self._numbers.items()},
        }
        if plugins := KERNELS.plugins(self.settings.kernel):
            description["plugins"] = plugins
        if self.recalibration.labels:
            description["recalibration"] = self.recalibration._asdict()
        write_files(Path(folder), NAME, description, {key: t.numpy() for key, t in self._numbers.items()})

    @classmethod
    def load(cls, folder: Path | str) -> GPClassifier:
        """Read what `save` wrote. Raises IntegrityError for a changed, broken or foreign folder."""
        refuse_code(Path(folder))
        description, arrays = read_files(Path(folder), NAME)
        numbers = {name: torch.tensor(values) for name, values in arrays.items()}
        try:
            KERNELS.same_plugins(
                description.get("plugins", {}), description["settings"]["kernel"], str(folder)
            )
            classifier = cls(**description["settings"])
            report = FitReport(**description["report"])
            shapes = {name: tuple(shape) for name, shape in description["shapes"].items()}
            if shapes != {name: tuple(value.shape) for name, value in numbers.items()}:
                raise ValueError(f"shapes {shapes} do not fit the numbers")
            model = None if report.degenerate else _model_of(classifier.settings.kernel, numbers)
            classifier.recalibration = Recalibration(**description.get("recalibration", {}))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise IntegrityError(f"{folder} does not describe a fit: {error}. Fit again.") from error
        classifier._report, classifier._numbers, classifier._model = report, numbers, model
        return classifier


def training_rows(
    X: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike | None = None,
    cells: NDArray[Any] | None = None,
    spectra: bool = True,
) -> TrainingRows:
    """Return the rows as `GPClassifier.fit` sees them; ``spectra`` are clamped at 0 and sorted.

    Raises DataError for rows, labels or weights that cannot be used.
    """
    x = _rows(X, spectra)
    labels = _labels(y, len(x))
    if len(x) < 2:
        raise DataError(f"{len(x)} training rows; at least 2 are needed")
    scales = None if weights is None else checked_weights(weights, len(x))
    if cells is not None and np.shape(cells) != (len(x),):
        raise DataError(f"cells have shape {np.shape(cells)}, the spectra {len(x)} rows; give one a row")
    return TrainingRows(x, labels, scales, cells)


def _rows(values: ArrayLike, spectra: bool) -> NDArray[np.float64]:
    x = _numeric(values, "spectra")
    if x.ndim != 2 or x.shape[1] == 0:
        raise DataError(f"spectra have shape {x.shape}; (rows, N) with N >= 1 is needed")
    bad = ~np.isfinite(x).all(axis=1)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(f"row {row} of the spectra is not finite ({x[row]}); leave out rows that are missing")
    return np.ascontiguousarray(np.sort(np.maximum(x, 0.0), axis=1)[:, ::-1] if spectra else x)


def _labels(values: ArrayLike, rows: int) -> NDArray[np.int64]:
    y = _numeric(values, "labels")
    if y.shape != (rows,):
        raise DataError(f"labels have shape {y.shape}, the spectra {rows} rows; ({rows},) is needed")
    bad = ~np.isin(y, (0.0, 1.0))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(f"label {y[row]} in row {row}; labels are 0 or 1, rows without one are left out")
    return y.astype(np.int64)


def _numeric(values: Any, name: str) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} are not an array of numbers: {error}") from error


def _numbers_of(model: SparseGP) -> dict[str, Tensor]:
    vector, matrix = model.variational_parameters()
    named = {
        POINTS: model.variational_strategy.inducing_points,
        VECTOR: vector,
        MATRIX: matrix,
        HYPERPARAMETERS: torch.cat([p.flatten() for p in model.log_hyperparameters]),
    }
    return {name: value.detach().cpu().clone() for name, value in named.items()}


def _model_of(kernel: str, numbers: dict[str, Tensor]) -> SparseGP:
    model = SparseGP(kernel, numbers[POINTS])
    for parameter, name in zip(model.variational_parameters(), (VECTOR, MATRIX), strict=True):
        parameter.data.copy_(numbers[name])
    model.set_log_hyperparameters(*numbers[HYPERPARAMETERS].tolist())
    return model.eval().requires_grad_(False)


@torch.no_grad()
def _latent(model: SparseGP, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of f, both (Q,), in blocks of rows."""
    blocks = torch.as_tensor(x).to(model.variational_strategy.inducing_points).split(PREDICTION_ROWS)
    posteriors = [model(block) for block in blocks if len(block)]
    if not posteriors:
        return np.empty(0), np.empty(0)
    mean = torch.cat([posterior.mean for posterior in posteriors]).double().numpy()
    variance = torch.cat([posterior.variance for posterior in posteriors]).double().numpy()
    return mean, variance
