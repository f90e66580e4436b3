"""The guard finds a planted row of the target at every place, under every name that it can have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from bench.constructed_cells import source_cell
from sgpu.gp.classifier import GPClassifier, training_rows
from sgpu.study.benchmark import Cell
from sgpu.transfer.designs import DESIGNS as ALL_DESIGNS
from sgpu.transfer.designs import IN_DOMAIN, Plan, TrainingPool, admit, plans, pool_of
from sgpu.transfer.guard import (
    KEPT_OUT,
    LeakageError,
    Rule,
    check,
    check_report,
    check_sample,
    rule_for,
)
from sgpu.transfer.rows import SourceCell, TransferRows, joined

CELLS = {Cell(m, d): source_cell(m, d, 40) for m in "ab" for d in "xy"}
TARGET = CELLS[Cell("a", "x")]
DESIGNS = ("model_matrix", "dataset_matrix", "leave_one_model_out", "leave_one_dataset_out", "leave_both_out")


def plan_of(design: str) -> Plan:
    made, _ = plans(dict.fromkeys(CELLS, "text"), [design])
    return next(plan for plan in made if plan.design == design and plan.target == TARGET.cell)


def clean(design: str) -> tuple[TrainingPool, Rule]:
    plan = plan_of(design)
    return pool_of(plan, CELLS), rule_for(design, TARGET.cell, CELLS)


def with_row(rows: TransferRows, planted: TransferRows) -> TransferRows:
    return joined([rows, planted])


def disguised(row: TransferRows, **columns: str | None) -> TransferRows:
    """A row of the target with other keys."""
    keys = row.keys.with_columns(
        pl.lit(value, dtype=pl.String).alias(name) for name, value in columns.items()
    )
    return replace(row, keys=keys)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(("place", "told"), [("training", "training"), ("validation", "selection")])
@pytest.mark.parametrize("split", ["train", "test"])
def test_one_planted_row_of_the_target_is_found_at_every_place(
    design: str, place: str, told: str, split: str
) -> None:
    pool, rule = clean(design)
    assert admit(pool, rule) is pool
    planted = with_row(getattr(pool, place), TARGET.part(split).take(np.array([0])))
    with pytest.raises(LeakageError, match=f"leak into {told}: 1 of .* the target a/x"):
        admit(replace(pool, **{place: planted}), rule)


def wrong(design: str, **changed: Any) -> TrainingPool:
    """What a plan of this design would take that keeps nothing of the target out of its sources."""
    everything = {"sources": tuple(CELLS), "kept_out": frozenset(), **changed}
    return pool_of(replace(plan_of(design), **everything), CELLS)


@pytest.mark.parametrize(
    ("design", "why"),
    [
        ("model_matrix", "target model"),
        ("dataset_matrix", "target data set, same question"),
        ("leave_one_model_out", "target model"),
        ("leave_one_dataset_out", "target data set, same question"),
        ("leave_both_out", "target model, target data set, same question"),
    ],
)
def test_a_plan_that_keeps_nothing_out_is_found(design: str, why: str) -> None:
    with pytest.raises(LeakageError, match=rf"leak into training: .* \({why}"):
        admit(wrong(design), rule_for(design, TARGET.cell, CELLS))


def test_a_plan_that_forgets_half_of_what_its_design_keeps_out_is_found() -> None:
    rule = rule_for("leave_both_out", TARGET.cell, CELLS)
    with pytest.raises(LeakageError, match="target model"):
        admit(wrong("leave_both_out", kept_out=frozenset({"dataset"})), rule)
    with pytest.raises(LeakageError, match="target data set"):
        admit(wrong("leave_both_out", kept_out=frozenset({"model"})), rule)


def test_a_plan_from_another_modality_that_takes_its_own_is_found() -> None:
    cells = {**CELLS, (sees := Cell("v", "photos")): source_cell("v", "photos", 40, modality="vision")}
    made, _ = plans({cell: known.modality for cell, known in cells.items()}, ["modality"])
    plan = next(plan for plan in made if plan.design == "modality" and plan.target == TARGET.cell)
    rule = rule_for("modality", TARGET.cell, cells)
    assert plan.sources == (sees,) and admit(pool_of(plan, cells), rule)
    too_many = replace(plan, sources=(sees, Cell("b", "y")))
    with pytest.raises(LeakageError, match=r"\(target modality\), for instance b/y"):
        admit(pool_of(too_many, cells), rule)


def test_the_guard_has_a_rule_for_every_design_and_a_right_plan_keeps_it() -> None:
    assert set(KEPT_OUT) == {IN_DOMAIN, *ALL_DESIGNS}
    modalities = dict.fromkeys(CELLS, "text") | {Cell("v", "photos"): "vision"}
    cells = {**CELLS, Cell("v", "photos"): source_cell("v", "photos", 40, modality="vision")}
    made, _ = plans(modalities, ALL_DESIGNS)
    assert {plan.design for plan in made} == set(KEPT_OUT)
    for plan in made:
        assert admit(pool_of(plan, cells), rule_for(plan.design, plan.target, cells))


def test_a_design_without_a_rule_is_refused() -> None:
    with pytest.raises(LeakageError, match="no rule for the design 'leave_nothing_out'"):
        rule_for("leave_nothing_out", TARGET.cell, CELLS)


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
    rule = Rule(TARGET.cell, frozenset({"model"}), target.keys)
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
    rule = Rule(TARGET.cell, frozenset(), TARGET.part("test").keys)
    other = CELLS[Cell("b", "y")]
    assert other.rows.keys["row_sha256"].null_count() == len(other.rows)
    check("training", other.rows, rule)


def test_the_message_counts_the_rows_and_names_some() -> None:
    pool, rule = clean("leave_both_out")
    planted = with_row(pool.training, TARGET.part("test").take(np.arange(5)))
    with pytest.raises(LeakageError, match=r"5 of \d+ rows .* for instance a/x/q00\d\d, a/x/q00\d\d, a/x"):
        check("training", planted, rule)


def test_a_fit_of_other_rows_is_found() -> None:
    rows = clean("leave_both_out")[0].training
    x, label = rows.spectra, rows.label
    weights = np.linspace(0.5, 1.5, len(label))
    for given in (None, weights):
        admitted = training_rows(x, label, given)
        check_report(GPClassifier(inducing=8).fit(x, label, given).fit_report, admitted, TARGET.cell)
    admitted = training_rows(x, label)
    target = TARGET.part("test").spectra[:1]
    others: list[tuple[Any, ...]] = [
        (np.concatenate([x, x[:1]]), np.append(label, 1)),  # at the place of an admitted one
        (np.concatenate([x[:-1], target]), label),
        (x, np.ones_like(label)),  # one class only
        (x, label, weights),
    ]
    for other in others:
        report = GPClassifier(inducing=8).fit(*other).fit_report
        with pytest.raises(LeakageError, match=rf"its {len(other[1])} rows .* not the 20 rows"):
            check_report(report, admitted, TARGET.cell)


def sample_of(target: SourceCell) -> tuple[TransferRows, TransferRows, Rule]:
    evaluated = target.part("test")
    return target.part("train"), evaluated, Rule(target.cell, frozenset(), evaluated.keys)


def test_a_labelled_row_that_is_measured_on_is_found() -> None:
    sample, evaluated, rule = sample_of(TARGET)
    check_sample(sample, rule)
    with pytest.raises(LeakageError, match="leak into calibration: 1 of"):
        check_sample(with_row(sample, evaluated.take(np.array([2]))), rule)


def test_a_labelled_row_of_another_cell_is_found() -> None:
    sample, _, rule = sample_of(TARGET)
    with pytest.raises(LeakageError, match="1 of 21 labelled rows are not of the target a/x"):
        check_sample(with_row(sample, CELLS[Cell("b", "y")].rows.take(np.array([0]))), rule)
