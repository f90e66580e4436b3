"""Forecasts of all methods for one cell: within it by cross-validation, and from the other cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.study_plus.answers import Floats, ScoredAnswers
from sgpu.agreement import content_agreement
from sgpu.evaluation.mapping import fit_platt
from sgpu.gp.classifier import GPClassifier, Prediction
from sgpu.gp.content import KERNEL, PER_QUESTION, SHARED_FROM, answer_rows, set_rows
from sgpu.gp.logistic import Recalibration, sigmoid_moments
from sgpu.methods.base import METHODS

FOLDS, REPETITIONS, SEED = 5, 2, 0
FREE = (
    "largest_eigenvalue", "spectral_entropy", "degree_matrix", "snne", "self_consistency",
    "discrete_semantic_entropy", "kernel_language_entropy", "content_overlap", "shared_word",
)  # fmt: skip
WHITE_BOX = ("predictive_entropy", "semantic_entropy", "normalised_semantic_entropy")
OF_ANSWER = ("chosen", "first")  # labels of one answer; the others are of the set
RECALIBRATED_ON, DRAWS = (25, 50, 100), 20
SPECTRA = "matern15"  # the kernel of the paper's classifier
# Inducing points of a pooled classifier: a line needs two.
POOL_POINTS = {SPECTRA: 128, KERNEL: 64, "linear": 8}


class Forecast(NamedTuple):
    """A score (Q,) that ranks and a probability (Q,); NaN where a method says nothing."""

    score: Floats
    probability: Floats


@dataclass(frozen=True)
class TrainingSet:
    """Rows x (M, C) with labels y (M,) of questions (M,), and a row (Q, C) to forecast of each question.

    ``usable`` (Q,) says where that row is known, ``kernel`` how the rows are read; Matern 3/2 reads spectra.
    """

    x: Floats
    y: Floats
    question: NDArray[np.intp]
    forecast: Floats
    usable: NDArray[np.bool_]
    kernel: str = KERNEL

    def fit(self, questions: NDArray[np.bool_]) -> GPClassifier:
        """Fit the rows of some ``questions`` (Q,) that have a label."""
        rows = questions[self.question] & ~np.isnan(self.y)
        return _classifier(self.kernel).fit(self.x[rows], self.y[rows])


def spectrum_rows(cell: ScoredAnswers, label: str) -> TrainingSet:
    """Return the rows of `sgpu`: the spectra."""
    x = cell.features.eigenvalues
    assert x is not None
    every = np.ones(len(x), dtype=np.bool_)
    return TrainingSet(x, cell.label(label), np.arange(len(x)), x, every, SPECTRA)


def content_rows(
    cell: ScoredAnswers, label: str, columns: int = 2, questions: Sequence[str] | None = None
) -> TrainingSet:
    """Return the rows of `sgpu_plus`; ``questions`` take the place of the cell's own in a placebo."""
    found = cell.found
    if questions is not None:
        found = [
            content_agreement(texts, question)
            for texts, question in zip(cell.features.answers, questions, strict=True)
        ]
    usable = np.array([one is not None for one in found])
    known = [one for one in found if one is not None]
    places = np.flatnonzero(usable)
    if label not in OF_ANSWER:
        x = set_rows(known, columns)
        rows = np.full((len(found), columns), np.nan)
        rows[usable] = x
        return TrainingSet(x, cell.label(label)[usable], places, rows, usable)
    of_answer = cell.chosen if label == "chosen" else np.zeros(len(found), dtype=np.int64)
    drawn = {
        int(q): np.sort(np.random.default_rng((SEED, int(q))).permutation(cell.n)[:PER_QUESTION])
        for q in places
    }
    by_question = [answer_rows(one) for one in known]
    rows = np.full((len(found), 4), np.nan)
    rows[usable] = [one[of_answer[q]] for one, q in zip(by_question, places, strict=True)]
    x = np.concatenate([one[drawn[int(q)]] for one, q in zip(by_question, places, strict=True)])
    y = np.concatenate([cell.of.votes[q, drawn[int(q)]] for q in places])
    return TrainingSet(x, y, np.repeat(places, PER_QUESTION), rows, usable)


def base_rows(cell: ScoredAnswers, label: str) -> TrainingSet:
    """Return the rows of `sgpu-base`: one number a question, read on a line.

    It is the mean overlap of the answer in question with the others, or of the set.
    """
    rows = content_rows(cell, label, columns=1)
    x = rows.forecast[:, :1]
    places = np.flatnonzero(rows.usable)
    return TrainingSet(x[places], cell.label(label)[places], places, x, rows.usable, "linear")


def free_scores(cell: ScoredAnswers, label: str) -> dict[str, Floats]:
    """Return the scores (Q,) of the methods without training, higher for more trustworthy.

    Of single answers: ``mean_cosine``, the mean of cos(a_i, a_j) over the others (as in Manakul et al. 2023);
    ``log_perplexity``, the mean log-probability of its tokens (Fomicheva et al. 2020); ``cocoa``, which is
    (1 - mean_cosine) * log_perplexity (Vashurin et al. 2025). `sgpu.methods` has the sources of the others.
    """
    scores = {name: METHODS.get(name).confidence(cell.features) for name in (*FREE, *WHITE_BOX)}
    if label in OF_ANSWER:
        place = cell.chosen if label == "chosen" else np.zeros_like(cell.chosen)
        rows = np.arange(len(place))
        logprobs = np.array(
            [np.mean(own[i]) if own[i] else np.nan for own, i in zip(cell.of.logprobs, place, strict=True)]
        )
        cosine = cell.mean_cosine[rows, place]
        scores |= {"mean_cosine": cosine, "log_perplexity": logprobs, "cocoa": (1 - cosine) * logprobs}
    return scores


def forecast_within(cell: ScoredAnswers, label: str) -> dict[str, Forecast]:
    """Forecast every question of a cell by classifiers and maps that were fitted without it."""
    y, q = cell.label(label), len(cell.of.questions)
    made: dict[str, Forecast] = {}
    for name, score in free_scores(cell, label).items():
        made[name] = Forecast(score, _mean_over_folds(y, lambda train, s=score: _platt(s, y, train)))
    spectra = spectrum_rows(cell, label)
    plain = _mean_over_folds(y, lambda train: _predict(spectra, spectra.fit(train)).probability)
    made["sgpu"] = Forecast(plain, plain)
    shared = 2 if np.sum(~np.isnan(y)) * (FOLDS - 1) / FOLDS >= SHARED_FROM else 1
    permuted = np.random.default_rng(SEED).permutation(q)
    other = [cell.of.questions[(i + q // 2) % q] for i in range(q)]
    for name, rows, order in (
        ("sgpu_plus", content_rows(cell, label, shared), None),
        ("placebo: another question", content_rows(cell, label, shared, other), None),
        ("placebo: permuted labels", content_rows(cell, label, shared), permuted),
    ):
        fitted = _mean_over_folds(y, lambda train, r=rows, o=order: _forecast(r, train, o))
        # Where it declines, the classifier of spectra answers, as for a user.
        filled = np.where(rows.usable, fitted, plain)
        made[name] = Forecast(filled, filled)
    return made


def _forecast(rows: TrainingSet, train: NDArray[np.bool_], order: NDArray[np.intp] | None) -> Floats:
    if order is not None:
        shuffled = np.random.default_rng(SEED).permutation(rows.y)
        rows = replace(rows, y=shuffled)
    return _predict(rows, rows.fit(train)).probability


def _predict(rows: TrainingSet, classifier: GPClassifier) -> Prediction:
    """Predict all questions; NaN where the row is unknown."""
    prediction = classifier.predict(rows.forecast[rows.usable])
    whole = np.full((len(prediction), len(rows.usable)), np.nan)
    whole[:, rows.usable] = prediction
    return Prediction(*whole)


def _mean_over_folds(y: Floats, fitted: Callable[[NDArray[np.bool_]], Floats]) -> Floats:
    """Return the mean over repetitions of out-of-fold forecasts (Q,)."""
    forecasts = np.full((REPETITIONS, len(y)), np.nan)
    for repetition in range(REPETITIONS):
        for test in folds(len(y), repetition):
            forecasts[repetition, test] = fitted(~test)[test]
    return forecasts.mean(axis=0)


def folds(q: int, repetition: int) -> Iterator[NDArray[np.bool_]]:
    """Yield which of Q questions each fold tests."""
    fold = np.random.default_rng((SEED, repetition)).permutation(q) % FOLDS
    for number in range(FOLDS):
        yield fold == number


def _platt(score: Floats, y: Floats, train: NDArray[np.bool_]) -> Floats:
    rows = train & ~np.isnan(score) & ~np.isnan(y)
    if len(np.unique(y[rows])) < 2 or np.ptp(score[rows]) == 0:
        return np.full(len(y), (y[rows].sum() + 1) / (rows.sum() + 2))
    return fit_platt(score[rows], y[rows])(score)


class ZeroShot(NamedTuple):
    """Probabilities (Q,) for a cell that was not trained on, with the base rate of the training cells.

    ``recalibrated`` has for each number of labels the forecasts (draws, Q), NaN for the labelled questions.
    """

    probability: Floats
    widened: Floats
    base_rate: float
    recalibrated: Mapping[int, Floats]


def forecast_zero_shot(
    rows_of: Callable[[ScoredAnswers], TrainingSet],
    others: Sequence[ScoredAnswers],
    target: ScoredAnswers,
    y: Floats,
) -> ZeroShot:
    """Forecast a cell by a classifier of the ``others`` pooled; ``y`` (Q,) are the target's labels."""
    pool = [rows_of(cell) for cell in others]
    classifier = fit_pool(pool)
    maps = []
    for part in pool:
        rows = ~np.isnan(part.y)
        latent = classifier.predict(part.x[rows])
        maps.append(Recalibration.fit(latent.latent_mean, latent.latent_variance, part.y[rows])[:2])
    slope_variance, offset_variance = np.var(maps, axis=0, ddof=1)
    prediction = _predict(rows_of(target), classifier)
    mean, variance = prediction.latent_mean, prediction.latent_variance
    wide = variance + slope_variance * (mean**2 + variance) + offset_variance
    usable = ~np.isnan(mean)
    widened = np.full(len(mean), np.nan)
    widened[usable] = sigmoid_moments(mean[usable], wide[usable]).mean
    recalibrated = {n: _recalibrate(mean, variance, y, n) for n in RECALIBRATED_ON}
    base_rate = float(np.nanmean(np.concatenate([part.y for part in pool])))
    return ZeroShot(prediction.probability, widened, base_rate, recalibrated)


def fit_pool(pool: Sequence[TrainingSet]) -> GPClassifier:
    """Fit all rows that have a label, of one kind."""
    x, y = np.concatenate([part.x for part in pool]), np.concatenate([part.y for part in pool])
    known = ~np.isnan(y)
    return _classifier(pool[0].kernel, POOL_POINTS[pool[0].kernel]).fit(x[known], y[known])


def _classifier(kernel: str, inducing: int = 128) -> GPClassifier:
    return GPClassifier(kernel=kernel, spectra=kernel == SPECTRA, seed=SEED, inducing=inducing)


def forecast_rivals(
    others: Sequence[ScoredAnswers], target: ScoredAnswers, label: str
) -> dict[str, Forecast]:
    """Forecast a cell by the methods without training, mapped by Platt on the ``others`` pooled."""
    y = np.concatenate([cell.label(label) for cell in others])
    pooled = [free_scores(cell, label) for cell in others]
    made = {}
    for name, score in free_scores(target, label).items():
        together = np.concatenate([scores[name] for scores in pooled])
        known = ~np.isnan(y) & ~np.isnan(together)
        made[name] = Forecast(score, fit_platt(together[known], y[known])(score))
    return made


def _recalibrate(mean: Floats, variance: Floats, y: Floats, n: int) -> Floats:
    """Return forecasts (draws, Q) after a slope and an offset were fitted to ``n`` labels of the cell."""
    usable = np.flatnonzero(~np.isnan(mean) & ~np.isnan(y))
    made = np.full((DRAWS, len(y)), np.nan)
    for draw in range(DRAWS):
        order = np.random.default_rng((SEED, draw)).permutation(usable)
        labelled, rest = order[:n], order[n:]
        line = Recalibration.fit(mean[labelled], variance[labelled], y[labelled])
        made[draw, rest] = sigmoid_moments(*line.apply(mean[rest], variance[rest])).mean
    return made
