"""Metrics of chosen answers: those of a cell on the votes of these answers, under names of their own."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sgpu.evaluation.chosen_answers import evaluate_answers


def test_chosen_and_first_answers_are_measured_under_names_of_their_own() -> None:
    draw = np.random.default_rng(0)
    p = draw.uniform(size=200)
    chosen, first = (draw.uniform(size=200) < p).astype(float), (draw.uniform(size=200) < 0.5).astype(float)
    chosen[7] = np.nan
    rows = {row.metric: row for row in evaluate_answers("mine", p, chosen, first, np.full(200, "test"))}
    assert set(rows) == {
        "accuracy_answer", "auroc_answer", "auarc_answer", "ece_answer", "brier_answer", "log_loss_answer",
        "accuracy_first_answer",
    }  # fmt: skip
    known = ~np.isnan(chosen)
    assert rows["auroc_answer"].value == pytest.approx(roc_auc_score(chosen[known], p[known]))
    assert rows["accuracy_first_answer"].value == pytest.approx(first.mean())
    assert (rows["accuracy_answer"].n, rows["accuracy_answer"].n_missing) == (199, 1)
