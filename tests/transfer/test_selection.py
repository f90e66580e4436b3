from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss

from bench.constructed_cells import source_cell
from sgpu.gp.classifier import GPClassifier
from sgpu.transfer.selection import (
    Candidate,
    candidates,
    carried_over,
    choose,
    fit_representation,
    row_losses,
)

ONE, TWO = candidates(["rbf", "matern15"], ["raw"], [16])


def test_candidates_are_all_combinations_in_order() -> None:
    found = candidates(["rbf", "matern15"], ["raw", "log"], [8, 16])
    assert len(found) == 8 and found[0] == Candidate("rbf", "raw", 8)
    assert str(found[-1]) == "matern15, log, 16 inducing points"


def test_one_source_does_not_choose_a_representation_for_another_cell() -> None:
    found = carried_over(candidates(["rbf", "matern15"], ["raw", "log"], [8, 16]))
    assert len(found) == 4 and {candidate.representation for candidate in found} == {"raw"}


def test_the_least_loss_is_chosen_where_it_is_clearly_less() -> None:
    rows = np.random.default_rng(0).uniform(0.4, 0.8, 30)
    assert choose({ONE: rows, TWO: rows - 0.1}) == TWO
    assert choose({ONE: rows - 0.1, TWO: rows}) == ONE


def test_a_gain_within_its_standard_error_leaves_the_first() -> None:
    rows = np.full(4, 0.5)
    # Gains 3, -1, -1, 1: mean 0.5, standard error sqrt(11 / 3) / 2 = 0.957.
    assert choose({ONE: rows, TWO: rows - np.array([3.0, -1.0, -1.0, 1.0])}) == ONE
    # Gains 3, 1, 1, 3: mean 2, standard error sqrt(4 / 3) / 2 = 0.577.
    assert choose({ONE: rows, TWO: rows - np.array([3.0, 1.0, 1.0, 3.0])}) == TWO


def test_without_rows_the_first_is_taken() -> None:
    assert choose({ONE: np.empty(0), TWO: np.empty(0)}) == ONE
    assert choose({ONE: np.array([0.9]), TWO: np.array([0.1])}) == ONE


def test_losses_are_the_log_loss_of_the_validation_rows() -> None:
    cell = source_cell("a", "x", 80)
    train, validation = cell.part("train"), cell.part("validation")
    classifier = GPClassifier(inducing=16).fit(train.spectra, train.label)
    raw = fit_representation("raw", train.spectra)
    expected = log_loss(validation.label, classifier.predict(validation.spectra).probability)
    assert row_losses(classifier, raw, validation).mean() == pytest.approx(expected)
