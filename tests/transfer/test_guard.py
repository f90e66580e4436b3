"""The guard finds a planted row of the target at every place, under every name that it can have."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import polars as pl
import pytest

from bench.constructed_cells import source_cell
from sgpu.gp.inducing import inducing_points
from sgpu.study import Cell
from sgpu.transfer.designs import Plan, plans
from sgpu.transfer.guard import LeakageError, Rule, check, check_points, check_sample
from sgpu.transfer.pool import Uses, guarded, pool_of, rule_of, uses_of
from sgpu.transfer.rows import Rows, SourceCell, joined

CELLS = {Cell(m, d): source_cell(m, d, 40) for m in "ab" for d in "xy"}
TARGET = CELLS[Cell("a", "x")]
DESIGNS = ("model_matrix", "dataset_matrix", "leave_one_model_out", "leave_one_dataset_out", "leave_both_out")


def plan_of(design: str) -> Plan:
    made, _ = plans(dict.fromkeys(CELLS, "text"), [design])
    return next(plan for plan in made if plan.design == design and plan.target == TARGET.cell)


def clean(design: str) -> tuple[Uses, Rule]:
    plan = plan_of(design)
    rule = rule_of(plan, CELLS)
    return uses_of(pool_of(plan, CELLS, rule)), rule


def with_row(rows: Rows, planted: Rows) -> Rows:
    return joined([rows, planted])


def disguised(row: Rows, **columns: str | None) -> Rows:
    """A row of the target with other keys."""
    keys = row.keys.with_columns(
        pl.lit(value, dtype=pl.String).alias(name) for name, value in columns.items()
    )
    return replace(row, keys=keys)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("place", [field.name for field in fields(Uses)])
@pytest.mark.parametrize("split", ["train", "test"])
def test_one_planted_row_of_the_target_is_found_at_every_place(design: str, place: str, split: str) -> None:
    uses, rule = clean(design)
    assert guarded(uses, rule) == uses
    planted = with_row(getattr(uses, place), TARGET.part(split).take(np.array([0])))
    with pytest.raises(LeakageError, match=f"leak into {place.replace('_', ' ')}: 1 of .* the target a/x"):
        guarded(replace(uses, **{place: planted}), rule)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"model": "z", "dataset": "z", "question_id": "z"}, "same text_sha256"),
        ({"model": "z", "dataset": "z", "question_id": "z", "text_sha256": "z"}, "same row_sha256"),
        ({"model": "z", "text_sha256": "z", "row_sha256": None}, "same question"),
        ({"dataset": "z", "question_id": "z", "text_sha256": "z", "row_sha256": "z"}, "target model"),
    ],
)
def test_a_test_question_is_known_under_other_names(columns: dict[str, str | None], why: str) -> None:
    target = disguised(TARGET.part("test"), row_sha256="hash of the row")
    rule = Rule(TARGET.cell, frozenset({"a"}), frozenset(), target.keys)
    with pytest.raises(LeakageError, match=why):
        check("training", disguised(target.take(np.array([3])), **columns), rule)


def test_rows_of_a_data_set_that_is_left_out_are_found_whatever_their_model() -> None:
    _, rule = clean("leave_one_dataset_out")
    with pytest.raises(LeakageError, match="target data set"):
        check("training", CELLS[Cell("b", "x")].part("train"), rule)


def test_training_questions_of_the_target_may_come_from_other_models_where_its_data_set_is_shared() -> None:
    _, rule = clean("model_matrix")
    check("training", CELLS[Cell("b", "x")].part("train"), rule)
    with pytest.raises(LeakageError, match="same question"):
        check("training", CELLS[Cell("b", "x")].part("test"), rule)


def test_unknown_row_hashes_are_not_equal() -> None:
    rule = Rule(TARGET.cell, frozenset(), frozenset(), TARGET.part("test").keys)
    other = CELLS[Cell("b", "y")]
    assert other.rows.keys["row_sha256"].null_count() == len(other.rows)
    check("training", other.rows, rule)


def test_the_message_counts_the_rows_and_names_some() -> None:
    uses, rule = clean("leave_both_out")
    planted = with_row(uses.training, TARGET.part("test").take(np.arange(5)))
    with pytest.raises(LeakageError, match=r"5 of \d+ rows .* for instance a/x/q00\d\d, a/x/q00\d\d, a/x"):
        check("training", planted, rule)


def test_inducing_points_of_other_rows_are_found() -> None:
    uses, _ = clean("leave_both_out")
    admitted = np.sort(np.maximum(uses.training.spectra, 0), axis=1)[:, ::-1]
    check_points(inducing_points(admitted, 8, 0), admitted, 8, 0, TARGET.cell)
    leaked = np.concatenate([admitted, TARGET.part("test").spectra])
    with pytest.raises(LeakageError, match="leak into the inducing points"):
        check_points(inducing_points(leaked, 8, 0), admitted, 8, 0, TARGET.cell)


def sample_of(target: SourceCell) -> tuple[Rows, Rows, Rule]:
    evaluated = target.part("test")
    return target.part("train"), evaluated, Rule(target.cell, frozenset(), frozenset(), evaluated.keys)


def test_a_labelled_row_that_is_measured_on_is_found() -> None:
    sample, evaluated, rule = sample_of(TARGET)
    check_sample(sample, evaluated, rule)
    with pytest.raises(LeakageError, match="leak into calibration: 1 of"):
        check_sample(with_row(sample, evaluated.take(np.array([2]))), evaluated, rule)


def test_a_labelled_row_of_another_cell_is_found() -> None:
    sample, evaluated, rule = sample_of(TARGET)
    with pytest.raises(LeakageError, match="1 of 21 labelled rows are not of the target a/x"):
        check_sample(with_row(sample, CELLS[Cell("b", "y")].rows.take(np.array([0]))), evaluated, rule)
