from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from bench.constructed_cells import source_cell
from sgpu.study.benchmark import Cell
from sgpu.transfer.designs import (
    Plan,
    TrainingPool,
    first_cells,
    first_rows,
    fold_of,
    held_out_cells,
    plans,
    pool_of,
)
from sgpu.transfer.rows import SourceCell

CELLS = {Cell(m, d): source_cell(m, d, 40) for m in "abc" for d in "xyz"}
TARGET = Cell("a", "x")


def pool(cells: dict[Cell, SourceCell], design: str = "leave_both_out") -> TrainingPool:
    made, _ = plans(dict.fromkeys(cells, "text"), [design])
    plan: Plan = next(p for p in made if p.design == design and p.target == TARGET)
    return pool_of(plan, cells)


def test_training_rows_are_those_of_the_sources_training_questions() -> None:
    found = pool(CELLS)
    # Four cells of 20 training and 6 validation questions each.
    assert len(found.training) == 80 and len(found.validation) == 24 and found.left_out == 0
    assert set(found.training.cells.to_list()) == {"b/y", "c/y", "b/z", "c/z"}


def test_a_question_of_the_target_data_set_that_another_one_repeats_is_left_out_and_counted() -> None:
    donor = CELLS[Cell("b", "y")]
    keys = donor.rows.keys
    asked_too = CELLS[TARGET].rows.keys["text_sha256"]
    # Training questions 0 to 2 of b/y ask what a/x asks.
    text = pl.concat([asked_too.head(3), keys["text_sha256"].tail(-3)])
    changed = replace(donor, rows=replace(donor.rows, keys=keys.with_columns(text)))
    found = pool({**CELLS, donor.cell: changed})
    assert found.left_out == 3 and len(found.training) == 77
    assert not set(found.training.keys["text_sha256"]) & set(asked_too)


def folds(found: TrainingPool, most: int) -> list[TrainingPool]:
    return [fold_of(found, cells) for cells in held_out_cells(found, most, seed=0)]


def test_questions_for_validation_only_reach_no_fit_and_no_fold() -> None:
    donor = CELLS[Cell("b", "y")]
    only = replace(donor, split=np.where(donor.split == "train", "validation", donor.split))
    found = pool({**CELLS, donor.cell: only})
    assert "b/y" not in set(found.training.cells.to_list())
    for fold in folds(found, 3):
        assert "b/y" not in {*fold.training.cells, *fold.validation.cells}
    alone = pool({TARGET: CELLS[TARGET], donor.cell: only})
    assert not len(alone.training)


def test_rows_without_a_label_or_a_spectrum_train_nothing() -> None:
    donor = source_cell("b", "y", 40)
    donor.rows.label[0], donor.rows.spectra[1] = np.nan, np.nan
    assert len(pool({**CELLS, donor.cell: donor}).training) == 78


def test_smaller_pools_are_part_of_larger_ones() -> None:
    whole = pool(CELLS)
    for draw, sizes in ((first_cells, (1, 2, 3)), (first_rows, (5, 20, 60))):
        kept: set[tuple[object, ...]] = set()
        for size in sizes:
            rows = set(draw(whole, size, 3).training.keys.rows())
            assert kept < rows
            kept = rows
    assert len(first_rows(whole, 20, 3).training) == 20
    assert set(first_cells(whole, 2, 3).training.cells.value_counts()["count"]) == {20}


def test_the_draw_repeats_under_its_seed_and_changes_with_it() -> None:
    whole = pool(CELLS)
    once, again, other = (first_rows(whole, 20, seed).training.keys for seed in (1, 1, 2))
    assert once.equals(again) and not once.equals(other)


def test_a_fold_is_validated_on_cells_that_it_was_not_trained_on() -> None:
    whole = pool(CELLS)
    made = folds(whole, 3)
    assert len(made) == 3
    seen: list[tuple[object, ...]] = []
    for fold in made:
        validated = set(fold.validation.keys.select("model", "dataset").rows())
        assert validated and not validated & set(fold.training.keys.select("model", "dataset").rows())
        seen += fold.validation.keys.rows()
    assert sorted(seen) == sorted(whole.validation.keys.rows())


def test_one_source_is_validated_on_its_own_validation_rows() -> None:
    alone = pool({cell: known for cell, known in CELLS.items() if cell in (TARGET, Cell("b", "y"))})
    (fold,) = folds(alone, 5)
    assert fold is alone and len(fold.validation) == 6
