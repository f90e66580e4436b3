"""The classifier as users see it: quality against scikit-learn, invariances, and awkward training sets."""

from __future__ import annotations

import math
import time
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.stats import beta
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss, roc_auc_score

from bench.constructed import Constructed, class_names, constructed_spectra
from bench.pooled_fit import reference
from sgpu.errors import DataError, TrainingError, UsageError
from sgpu.gp import GPClassifier, Prediction


@pytest.fixture(scope="module")
def data() -> Constructed:
    return constructed_spectra(700, seed=7)


@pytest.fixture(scope="module")
def fitted(data: Constructed) -> GPClassifier:
    return GPClassifier().fit(data.spectra[:300], data.label[:300])


@pytest.fixture(scope="module")
def prediction(fitted: GPClassifier, data: Constructed) -> Prediction:
    return fitted.predict(data.spectra[300:])


def refit(data: Constructed, **settings: object) -> Prediction:
    classifier = GPClassifier(**settings)  # type: ignore[arg-type]
    return classifier.fit(data.spectra[:300], data.label[:300]).predict(data.spectra[300:])


class Comparison(NamedTuple):
    """CPU seconds of both fits, and the quality of ours minus that of scikit-learn's on held-out rows."""

    ours_seconds: float
    theirs_seconds: float
    auroc: float
    log_loss: float


def compare(data: Constructed, training: int) -> Comparison:
    """Fit both to the first rows of ``data``, predict the rest."""
    x, y = data.spectra[:training], data.label[:training]
    held_x, held_y = data.spectra[training:], data.label[training:]
    start = time.process_time()
    ours = GPClassifier().fit(x, y)
    middle = time.process_time()
    with warnings.catch_warnings():
        # Its hyper-parameters have no prior, and may end at their bounds.
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = reference().fit(x, y)
    end = time.process_time()
    p, q = ours.predict(held_x).probability, theirs.predict_proba(held_x)[:, 1]
    return Comparison(
        middle - start,
        end - middle,
        float(roc_auc_score(held_y, p) - roc_auc_score(held_y, q)),
        float(log_loss(held_y, p) - log_loss(held_y, q)),
    )


# Bars: the means that gp inference was accepted with, over 2000 held-out rows.


@pytest.mark.parametrize("make", [constructed_spectra, class_names])
def test_quality_at_300_rows_is_that_of_scikit_learn(make: object) -> None:
    fits = [compare(make(2300, seed=seed), 300) for seed in range(3)]  # type: ignore[operator]
    assert np.mean([fit.auroc for fit in fits]) > -0.003
    assert max(fit.log_loss for fit in fits) < 0.003


def test_quality_at_1000_rows_is_that_of_scikit_learn_and_faster() -> None:
    fit = compare(constructed_spectra(3000, seed=1), 1000)
    assert abs(fit.auroc) < 0.003
    assert fit.log_loss < 0.003
    assert fit.theirs_seconds > 3 * fit.ours_seconds  # measured 10 to 16


def test_probabilities_are_calibrated() -> None:
    made = constructed_spectra(4000, seed=2)
    p = GPClassifier().fit(made.spectra[:1000], made.label[:1000]).predict(made.spectra[1000:]).probability
    bins = np.digitize(p, np.linspace(0, 1, 11)) - 1
    gaps = [abs(made.label[1000:][bins == b].mean() - p[bins == b].mean()) for b in np.unique(bins)]
    assert np.average(gaps, weights=np.bincount(bins)[np.unique(bins)]) < 0.045


def test_unsafe_is_the_definition_and_rarer_with_more_rows(data: Constructed, prediction: Prediction) -> None:
    lower, upper = prediction.probability - prediction.sd / 2, prediction.probability + prediction.sd / 2
    assert np.array_equal(prediction.unsafe, (lower <= 0.5) & (upper >= 0.5))
    assert 0 < prediction.unsafe.mean() < 0.25
    few = GPClassifier().fit(data.spectra[:40], data.label[:40]).predict(data.spectra[300:])
    assert few.sd.mean() > prediction.sd.mean()


# Invariances.


def test_a_second_fit_is_bitwise_equal(data: Constructed, prediction: Prediction) -> None:
    for ours, again in zip(prediction, refit(data), strict=True):
        assert np.array_equal(ours, again)


def test_global_state_neither_matters_nor_changes(data: Constructed, prediction: Prediction) -> None:
    torch.manual_seed(1234)
    state, np_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            again = refit(data)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert np.array_equal(again.probability, prediction.probability)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], np_state)  # type: ignore[index]


def test_two_threads_predict_what_one_does(data: Constructed) -> None:
    few = Constructed(data.spectra[:120], data.label[:120])
    threads = torch.get_num_threads()
    fits = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            fits.append(GPClassifier().fit(*few).predict(few.spectra).probability)
    finally:
        torch.set_num_threads(threads)
    assert np.abs(fits[0] - fits[1]).max() < 1e-9


def test_swapped_labels_swap_probabilities(data: Constructed, prediction: Prediction) -> None:
    swapped = refit(Constructed(data.spectra, 1 - data.label))
    assert swapped.probability == pytest.approx(1 - prediction.probability, abs=1e-8)
    assert swapped.sd == pytest.approx(prediction.sd, abs=1e-8)


def test_the_scale_of_the_spectra_does_not_matter(data: Constructed, prediction: Prediction) -> None:
    scaled = refit(Constructed(data.spectra / 20, data.label))
    # Not exactly: which rows count as equal is decided on the scale of the eigenvalues.
    assert scaled.probability == pytest.approx(prediction.probability, abs=1e-3)


def test_rounding_noise_below_zero_and_the_order_of_eigenvalues_do_not_matter(
    fitted: GPClassifier, data: Constructed, prediction: Prediction
) -> None:
    rows = data.spectra[300:].clip(min=0)
    noisy = np.where(rows < 1e-9, -8e-6, rows)[:, ::-1]
    assert fitted.predict(noisy).probability == pytest.approx(prediction.probability, abs=1e-9)


def test_a_row_is_predicted_alike_alone_and_in_a_batch(fitted: GPClassifier, data: Constructed) -> None:
    rows = np.tile(data.spectra[300:], (12, 1))
    assert len(rows) > 4096
    batch = fitted.predict(rows).probability
    alone = [fitted.predict(rows[i : i + 1]).probability[0] for i in (0, 4097)]
    assert alone == pytest.approx(batch[[0, 4097]], abs=1e-12)


def test_float32_predicts_what_float64_does(data: Constructed, prediction: Prediction) -> None:
    single = refit(data, dtype="float32")
    assert single.probability.dtype == np.float64
    assert np.abs(single.probability - prediction.probability).mean() < 2e-3


@pytest.mark.parametrize("kernel", ["matern05", "matern25", "rbf"])
def test_other_kernels_fit_as_well(data: Constructed, kernel: str, prediction: Prediction) -> None:
    label = data.label[300:]
    ours = roc_auc_score(label, refit(data, kernel=kernel).probability)
    assert ours == pytest.approx(roc_auc_score(label, prediction.probability), abs=0.03)


# Training sets that are awkward.


def test_above_hyper_rows_all_rows_still_count(data: Constructed, prediction: Prediction) -> None:
    classifier = GPClassifier(hyper_rows=150).fit(data.spectra[:300], data.label[:300])
    assert classifier.fit_report.rows == 300
    full = classifier.predict(data.spectra[300:])
    assert np.abs(full.probability - prediction.probability).mean() < 0.03
    half = GPClassifier().fit(data.spectra[:150], data.label[:150]).predict(data.spectra[300:])
    assert full.sd.mean() < half.sd.mean()


def test_many_equal_rows_are_fitted() -> None:
    made = class_names(1000, seed=1)
    report = GPClassifier().fit(*made).fit_report
    assert report.beats_constant
    assert not report.fallback


def test_equal_rows_predict_their_rate() -> None:
    x, y = np.tile([20.0] + [0.0] * 19, (400, 1)), np.arange(400) % 4 != 0
    p = GPClassifier().fit(x, y).predict(np.vstack([x[0], np.ones(20)]))
    assert p.probability[0] == pytest.approx(0.75, abs=0.02)
    # The sd of a Beta posterior of 300 in 400 is 0.0216.
    assert p.sd[0] == pytest.approx(0.0216, rel=0.05)
    assert p.sd[1] > 3 * p.sd[0]


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_gives_its_constant_and_says_so(data: Constructed, label: int) -> None:
    classifier = GPClassifier().fit(data.spectra[:30], np.full(30, label))
    assert classifier.fit_report.degenerate
    assert not classifier.fit_report.beats_constant
    prediction = classifier.predict(data.spectra[:5])
    posterior = beta(30 * label + 1, 30 * (1 - label) + 1)
    assert prediction.probability == pytest.approx([posterior.mean()] * 5)
    assert prediction.sd == pytest.approx([posterior.std()] * 5)
    draws = posterior.rvs(200_000, random_state=0)
    logit = np.log(draws / (1 - draws))
    assert prediction.latent_mean[0] == pytest.approx(logit.mean(), abs=0.02)
    assert prediction.latent_variance[0] == pytest.approx(logit.var(), abs=0.05)
    assert not prediction.unsafe.any()


def test_two_rows_are_fitted() -> None:
    x = np.array([[4.0, 0, 0, 0], [1.0, 1, 1, 1]])
    p = GPClassifier().fit(x, [1, 0]).predict(x)
    assert p.probability[0] > 0.55 > 0.45 > p.probability[1]
    assert p.probability.sum() == pytest.approx(1.0, abs=1e-6)


def evidence_gain(classifier: GPClassifier) -> float:
    """Nats by which the spectra explain the labels better than their rate alone."""
    report = classifier.fit_report
    assert report.elbo is not None
    assert report.beats_constant == (report.elbo >= report.constant_evidence)
    return (report.elbo - report.constant_evidence) * report.rows


def test_labels_of_pure_noise_have_hardly_any_evidence(fitted: GPClassifier) -> None:
    made = constructed_spectra(300, seed=11)
    noise = np.random.default_rng(0).integers(0, 2, 300)
    classifier = GPClassifier().fit(made.spectra, noise)
    assert evidence_gain(classifier) < 3 < 10 < evidence_gain(fitted)
    assert classifier.predict(made.spectra).probability == pytest.approx(0.5, abs=0.25)


def test_where_the_search_fails_fixed_hyperparameters_are_used(
    data: Constructed, prediction: Prediction, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object) -> None:
        raise TrainingError("planted")

    monkeypatch.setattr("sgpu.gp.fitting.maximise", fails)
    classifier = GPClassifier().fit(data.spectra[:300], data.label[:300])
    report = classifier.fit_report
    assert report.fallback
    assert report.stop == "planted"
    assert report.median_distance is not None
    assert report.lengthscale == pytest.approx(2 * report.median_distance)
    assert report.outputscale == pytest.approx(4.0)
    again = classifier.predict(data.spectra[300:]).probability
    assert np.abs(again - prediction.probability).mean() < 0.05


def test_a_search_set_of_one_class_uses_fixed_hyperparameters() -> None:
    made = constructed_spectra(200, seed=1)
    label = np.zeros(200, dtype=int)
    label[np.random.default_rng(0).permutation(200)[-1]] = 1  # outside the first 20 of the subset
    report = GPClassifier(hyper_rows=20).fit(made.spectra, label).fit_report
    assert report.fallback
    assert "one class" in report.stop


# What is refused.


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[1.0, math.nan], [1.0, 1.0]], [0, 1], "row 0 of the spectra is not finite"),
        ([[1.0, 1.0], [math.inf, 1.0]], [0, 1], "row 1 of the spectra is not finite"),
        ([1.0, 2.0], [0, 1], r"shape \(2,\)"),
        ([[1.0, 1.0], [2.0, 0.0]], [0, 1, 1], r"labels have shape \(3,\)"),
        ([[1.0, 1.0], [2.0, 0.0]], [0, 2], "label 2.0 in row 1"),
        ([[1.0, 1.0], [2.0, 0.0]], [0, None], "label nan in row 1"),
        ([[1.0, 1.0]], [1], "1 training rows"),
        ([["a", "b"]], [1], "not an array of numbers"),
        (np.empty((0, 20)), [], "0 training rows"),
    ],
)
def test_rows_that_cannot_be_used_are_named(x: object, y: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        GPClassifier().fit(x, y)  # type: ignore[arg-type]


def test_another_number_of_eigenvalues_is_refused(fitted: GPClassifier) -> None:
    with pytest.raises(DataError, match=r"10 eigenvalues.*fitted to 20"):
        fitted.predict(np.ones((3, 10)))


def test_no_rows_give_no_predictions(fitted: GPClassifier) -> None:
    assert [len(values) for values in fitted.predict(np.empty((0, 20)))] == [0] * 5


def test_predicting_before_a_fit_is_refused() -> None:
    with pytest.raises(TrainingError, match="not fitted"):
        GPClassifier().predict(np.ones((1, 20)))


@pytest.mark.parametrize("settings", [{"kernel": "matern"}, {"dtype": "float16"}, {"inducing": 0}])
def test_settings_that_do_not_exist_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        GPClassifier(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "most", "settings"),
    [
        (50, 4, {}),
        (300, 4, {"inducing": 20}),  # more rows than the median distance is taken over, with centres
        (300, 4, {"inducing": 20, "hyper_rows": 200}),
        (4000, 5, {"inducing": 20, "hyper_rows": 200}),  # more rows than centres are taken from
    ],
)
def test_a_row_of_an_integer_weight_counts_as_so_many_equal_rows(
    rows: int, most: int, settings: dict[str, int]
) -> None:
    made = constructed_spectra(rows + 100, seed=6)
    x, y, times = made.spectra[:rows], made.label[:rows], np.random.default_rng(0).integers(1, most, rows)
    weighted = GPClassifier(**settings).fit(x, y, times)  # type: ignore[arg-type]
    repeated = GPClassifier(**settings).fit(x.repeat(times, axis=0), y.repeat(times))  # type: ignore[arg-type]
    ours, theirs = (fit.predict(made.spectra[rows:]) for fit in (weighted, repeated))
    assert ours.probability == pytest.approx(theirs.probability, abs=1e-8)
    assert ours.sd == pytest.approx(theirs.sd, abs=1e-8)


def test_weights_of_one_class_count_as_so_many_equal_rows() -> None:
    x = np.ones((3, 4))
    weighted, repeated = (
        GPClassifier().fit(x, [1, 1, 1], [1, 2, 4]),
        GPClassifier().fit(np.ones((7, 4)), [1] * 7),
    )
    assert weighted.predict(x).probability == pytest.approx(repeated.predict(x).probability)
