"""Whether the answer that a method chooses is right, beside the first answer of each question."""

from __future__ import annotations

from dataclasses import replace

from numpy.typing import ArrayLike

from sgpu.evaluation.cell import EvaluationSettings, MetricRow, evaluate_cell

# Metrics of the chosen answer get the first suffix, and those of the first answer the second.
ANSWER, FIRST = "_answer", "_first_answer"
OF_ANSWERS = {ANSWER: ("accuracy", "auroc", "auarc", "ece", "brier", "log_loss"), FIRST: ("accuracy",)}


def evaluate_answers(
    method: str,
    p_answer: ArrayLike,
    chosen_vote: ArrayLike,
    first_vote: ArrayLike,
    split: ArrayLike,
    settings: EvaluationSettings | None = None,
) -> list[MetricRow]:
    """Return metric rows of the answers that a method chooses with probabilities ``p_answer`` (Q,).

    Votes (Q,) are 1, 0 or NaN. Raises DataError as `evaluate_cell`.
    """
    p, rows = {method: p_answer}, list[MetricRow]()
    for suffix, vote in ((ANSWER, chosen_vote), (FIRST, first_vote)):
        measured = evaluate_cell(p, p, vote, split, settings=settings)
        rows += [
            replace(row, metric=row.metric + suffix) for row in measured if row.metric in OF_ANSWERS[suffix]
        ]
    return rows
