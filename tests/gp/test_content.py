"""Classifiers on agreement: they learn what constructed sets follow, and say nothing of what is unknown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from sgpu.agreement import ContentAgreement, content_agreement
from sgpu.errors import DataError, IntegrityError
from sgpu.gp.classifier import GPClassifier
from sgpu.gp.content import ContentClassifier, answer_rows, fit_content_rows, set_rows, write_content_rows

QUICK = {"inducing": 16}
N = 6
Made = tuple[list[ContentAgreement], np.ndarray, list[list[float | None]]]


def made(m: int, seed: int = 0) -> Made:
    """Sets that are right with a probability of their overlap, and answers with one of their own."""
    draw = np.random.default_rng(seed)
    centrality = draw.beta(1, 1, m)[:, None] * draw.beta(4, 1, (m, N))
    found = [ContentAgreement(row.mean(), row.max(), row, row) for row in centrality]
    label = (draw.uniform(size=m) < expit(8 * centrality.mean(axis=1) - 3)).astype(int)
    votes: list[list[float | None]] = (draw.uniform(size=(m, N)) < centrality).astype(float).tolist()
    return found, label, votes


@pytest.fixture(scope="module")
def fitted() -> ContentClassifier:
    return ContentClassifier.fit(*made(120), **QUICK)


def test_forecasts_are_close_to_those_of_a_logistic_regression_where_that_is_right(
    fitted: ContentClassifier,
) -> None:
    (train, label, _), (new, _, _) = made(120), made(60, seed=1)
    logistic = LogisticRegression(C=1e3).fit(set_rows(train, 1) / 20, label)
    expected = logistic.predict_proba(set_rows(new, 1) / 20)[:, 1]
    assert np.abs(fitted.predict(new).sets.probability - expected).mean() < 0.08


def test_below_a_hundred_labels_the_shared_word_is_left_out() -> None:
    assert ContentClassifier.fit(*made(40), **QUICK).sets.fit_report.features == 1


def test_most_central_answer_is_chosen_with_a_probability_of_its_own(fitted: ContentClassifier) -> None:
    found, _, _ = made(60, seed=2)
    prediction = fitted.predict(found)
    np.testing.assert_array_equal(prediction.chosen, [one.centrality.argmax() for one in found])
    centrality = [one.centrality.max() for one in found]
    assert np.corrcoef(prediction.p_answer, centrality)[0, 1] > 0.9


def test_trend_goes_on_where_the_training_ends() -> None:
    x = 20 * np.random.default_rng(0).uniform(0, 0.5, (200, 1))
    y = (np.random.default_rng(1).uniform(size=200) < expit(x[:, 0] - 5)).astype(int)
    with_trend, without = (
        GPClassifier(kernel, spectra=False, **QUICK).fit(x, y).predict([[10.0], [20.0]]).latent_mean
        for kernel in ("linear_matern15", "matern15")
    )
    assert with_trend[1] > with_trend[0]
    assert without[1] < without[0]


def test_without_votes_there_is_no_classifier_of_answers() -> None:
    found, label, _ = made(20)
    classifier = ContentClassifier.fit(found, label, [None] * 20, **QUICK)
    prediction = classifier.predict(found)
    assert classifier.answers is None and np.isnan(prediction.p_answer).all()
    assert not np.isnan(prediction.sets.probability).any()


def test_saved_classifiers_predict_the_same_and_those_of_spectra_are_refused(
    fitted: ContentClassifier, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "fit")
    found, _, _ = made(10, seed=3)
    one, other = ContentClassifier.load(tmp_path / "fit").predict(found), fitted.predict(found)
    np.testing.assert_array_equal(one.sets.probability, other.sets.probability)
    np.testing.assert_array_equal(one.p_answer, other.p_answer)
    GPClassifier(**QUICK).fit([[1, 1], [2, 0]] * 3, [0, 1] * 3).save(tmp_path / "spectra")
    with pytest.raises(IntegrityError, match="a classifier of spectra"):
        ContentClassifier.load(tmp_path / "spectra")


def test_rows_of_a_file_are_those_that_were_written(tmp_path: Path) -> None:
    found, label, votes = made(30)
    write_content_rows(tmp_path / "rows.arrow", found, label.tolist(), [None, *votes[1:]])
    one = fit_content_rows(tmp_path / "rows.arrow", QUICK, 3)
    other = ContentClassifier.fit(found, label, [None, *votes[1:]], seed=3, **QUICK)
    np.testing.assert_array_equal(one.predict(found).p_answer, other.predict(found).p_answer)
    (tmp_path / "broken").write_bytes(b"ARROW1")
    with pytest.raises(DataError, match="is not a file of training rows"):
        fit_content_rows(tmp_path / "broken", QUICK, 3)


def test_a_set_of_one_answer_is_refused_and_a_missing_answer_is_never_chosen(
    fitted: ContentClassifier,
) -> None:
    with pytest.raises(DataError, match="response set 1 has fewer than two answers"):
        fitted.predict([content_agreement(["a", "a"], "?"), content_agreement(["a"], "?")])
    gone = content_agreement([None, "Lima", "Lima"], "Where?")
    assert fitted.predict([gone]).chosen == [1]
    assert np.isnan(answer_rows(gone)[0, 0])
