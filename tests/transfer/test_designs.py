from __future__ import annotations

import pytest

from sgpu.study.benchmark import Cell
from sgpu.transfer.designs import DESIGNS, IN_DOMAIN, Plan, plans
from sgpu.transfer.rows import Modality

GRID: dict[Cell, Modality] = {Cell(model, dataset): "text" for dataset in "xyz" for model in "abc"}
TARGET = Cell("a", "x")


def of(design: str, known: dict[Cell, Modality] = GRID, target: Cell = TARGET) -> list[Plan]:
    made, _ = plans(known, [design])
    return [plan for plan in made if plan.design == design and plan.target == target]


def names(plan: Plan) -> set[str]:
    return {str(cell) for cell in plan.sources}


def test_every_target_has_its_in_domain_classifier() -> None:
    made, _ = plans(GRID, [])
    assert [(plan.design, plan.sources) for plan in made] == [(IN_DOMAIN, (cell,)) for cell in GRID]


def test_the_model_matrix_tries_every_other_model_of_the_data_set() -> None:
    found = of("model_matrix")
    assert [(plan.method, names(plan)) for plan in found] == [
        ("from model b", {"b/x"}),
        ("from model c", {"c/x"}),
    ]
    assert all(plan.kept_out == {"model"} for plan in found)


def test_the_data_set_matrix_tries_every_other_data_set_of_the_model() -> None:
    found = of("dataset_matrix")
    assert [names(plan) for plan in found] == [{"a/y"}, {"a/z"}]
    assert all(plan.kept_out == {"dataset"} for plan in found)


@pytest.mark.parametrize(
    ("design", "kept_out", "sources"),
    [
        ("leave_one_model_out", {"model"}, {"b/x", "c/x", "b/y", "c/y", "b/z", "c/z"}),
        ("leave_one_dataset_out", {"dataset"}, {"a/y", "b/y", "c/y", "a/z", "b/z", "c/z"}),
        ("leave_both_out", {"model", "dataset"}, {"b/y", "c/y", "b/z", "c/z"}),
    ],
)
def test_a_pool_leaves_out_what_its_name_says(design: str, kept_out: set[str], sources: set[str]) -> None:
    (plan,) = of(design)
    assert (plan.kept_out, names(plan)) == (kept_out, sources)


def test_modality_transfer_takes_the_other_modality_without_the_target_model_and_data_set() -> None:
    known: dict[Cell, Modality] = dict.fromkeys([Cell("v", "img"), Cell("a", "img")], "vision")
    known |= dict.fromkeys([Cell("a", "x"), Cell("b", "y")], "text")
    (to_text,) = of("modality", known, Cell("a", "x"))
    assert (to_text.method, names(to_text)) == ("from vision cells", {"v/img"})
    (to_vision,) = of("modality", known, Cell("v", "img"))
    assert (to_vision.method, names(to_vision)) == ("from text cells", {"a/x", "b/y"})


def test_a_design_without_sources_is_a_gap_with_its_reason() -> None:
    one_model: dict[Cell, Modality] = {Cell("a", name): "text" for name in "xy"}
    made, gaps = plans(one_model, DESIGNS)
    assert {plan.design for plan in made} == {IN_DOMAIN, "dataset_matrix", "leave_one_dataset_out"}
    whys = {gap.design: gap.why for gap in gaps if gap.target == Cell("a", "x")}
    assert set(whys) == {"model_matrix", "leave_one_model_out", "leave_both_out", "modality"}
    assert whys["leave_one_model_out"] == "all cells are of this model"


def test_a_method_names_one_classifier_of_a_target() -> None:
    made, _ = plans({**GRID, Cell("v", "img"): "vision"}, DESIGNS)
    keys = [(plan.target, plan.method) for plan in made]
    assert len(set(keys)) == len(keys)
