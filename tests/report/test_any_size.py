"""The table of one classifier for any number of answers."""

from __future__ import annotations

import polars as pl
import pytest

from sgpu.report.any_size import any_size_table


def metrics(model: str, setting: str, method: str, auroc: float) -> list[dict[str, object]]:
    base = {"kind": "n_answers", "setting": setting, "dataset": "d", "model": model, "method": method}
    return [
        {**base, "metric": "auroc", "value": auroc, "lo": auroc - 0.1, "hi": auroc + 0.1, "n": 50},
        {**base, "metric": "ece", "value": 0.05, "lo": 0.0, "hi": 0.1, "n": 50},
    ]


def both(model: str, setting: str, fitted: float, one: float) -> list[dict[str, object]]:
    return metrics(model, setting, "sgpu", fitted) + metrics(model, setting, "sgpu_any_size", one)


def test_both_classifiers_stand_beside_each_other_for_every_number() -> None:
    table = any_size_table(pl.DataFrame([*both("m", "20", 0.8, 0.81), *both("m", "5", 0.7, 0.72)]))
    rows = [(row["n_samples"], row["classifier"], row["auroc"], row["auroc_lo"]) for row in table.ours]
    assert rows == [
        ("5", "fitted to this number", 0.7, pytest.approx(0.6)),
        ("5", "one for any number", 0.72, pytest.approx(0.62)),
        ("20", "fitted to this number", 0.8, pytest.approx(0.7)),
        ("20", "one for any number", 0.81, pytest.approx(0.71)),
    ]


def test_several_cells_give_their_mean_without_an_interval() -> None:
    table = any_size_table(pl.DataFrame([*both("m", "5", 0.6, 0.6), *both("other", "5", 0.8, 0.9)]))
    assert [row["auroc"] for row in table.ours] == pytest.approx([0.7, 0.75])
    assert [row["auroc_lo"] for row in table.ours] == [None, None]
    assert [row["cells"] for row in table.ours] == [2, 2]


def test_a_cell_with_one_of_the_two_is_left_out() -> None:
    rows = [*both("m", "5", 0.6, 0.6), *metrics("other", "5", "sgpu", 0.9)]
    assert [row["cells"] for row in any_size_table(pl.DataFrame(rows)).ours] == [1, 1]


def test_a_study_that_varies_nothing_has_no_such_table() -> None:
    empty = pl.DataFrame(both("m", "5", 0.6, 0.6)).clear()
    assert any_size_table(empty).ours == []
