"""Forecasts of the study on constructed answers, of which it is known what should come out."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from bench.study_plus.answers import CellAnswers, majority_labels, reword
from bench.study_plus.cells import StudyCell
from bench.study_plus.compare import apply_rule, mean_difference, measure
from bench.study_plus.forecasts import Forecast, folds, forecast_within

Q = 40


def constructed(seed: int = 0) -> CellAnswers:
    """Twenty answers to each question; a model that knows a place names it most of the time."""
    draw = np.random.default_rng(seed)
    sure = draw.uniform(0.1, 1, Q)
    right = draw.uniform(size=(Q, 20)) < sure[:, None]
    answers = [["Lima" if one else f"place{draw.integers(9)}" for one in row] for row in right]
    same = np.array([[[a == b for b in row] for a in row] for row in answers], dtype=np.float64)
    cell = StudyCell("made", list, 1.0)
    return CellAnswers(
        "made",
        "made",
        cell,
        ["Where is it?"] * Q,
        [["Lima"]] * Q,
        answers,
        right.astype(np.float64),
        [[[-1.0]] * 20] * Q,
        same,
    )


def test_agreement_finds_what_is_right_and_permuted_labels_do_not() -> None:
    cell = constructed().scored(10)
    y = cell.label("other")
    found = measure(forecast_within(cell, "other"), y)
    assert found is not None and found.values["sgpu_plus"]["auroc"] > 0.75
    assert found.values["content_overlap"]["auroc"] > 0.85
    assert found.values["placebo: permuted labels"]["log_loss"] > found.values["sgpu_plus"]["log_loss"]


def test_label_of_the_other_answers_depends_on_none_that_is_scored() -> None:
    votes = np.zeros((2, 20))
    votes[0, 10:] = 1
    votes[1, :10] = 1
    cell = constructed()
    other = CellAnswers(**{**vars(cell), "votes": votes})
    np.testing.assert_array_equal(other.scored(10).label("other"), [1, 0])
    np.testing.assert_array_equal(other.scored(10).label("same"), [0, 1])
    np.testing.assert_array_equal(majority_labels(np.array([[1, 0], [np.nan, np.nan]])), [0, np.nan])


def test_every_question_is_tested_once_in_a_repetition() -> None:
    assert (np.sum(list(folds(Q, 1)), axis=0) == 1).all()


def test_rule_holds_for_a_better_method_and_names_the_cell_in_which_it_is_worse() -> None:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 300).astype(float)

    def made(noise: float) -> Forecast:
        score = expit(y * 2 - 1 + draw.normal(0, noise, 300))
        return Forecast(score, score)

    better = measure({"sgpu": made(3), "sgpu_plus": made(1)}, y)
    worse = measure({"sgpu": made(1), "sgpu_plus": made(3)}, y)
    assert better is not None and worse is not None
    assert mean_difference([better], "auroc").lo > 0 > mean_difference([worse], "auroc").hi
    cells = {"a": better, "b": better, "b-paraphrased": better}
    assert all(holds for _, holds, _ in apply_rule({"chosen": cells, "other": cells}))
    mixed = {**cells, "b": worse}
    outcome = {name: (holds, told) for name, holds, told in apply_rule({"chosen": mixed, "other": cells})}
    holds, told = outcome["2. no cell lower, chosen"]
    assert not holds and told.startswith("upper end below 0: b;")


def test_a_right_answer_is_reworded_with_an_accepted_name() -> None:
    from random import Random

    told = reword("It is in Peru, I think.", ["Peru"], Random(3))
    assert told.startswith("It is in P") and told.endswith(", I think.")
    assert reword("Nothing", ["Peru"], Random(0)) == "Nothing"
