from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

import sgpu.transfer.measure as measure
from bench.constructed_cells import source_cell
from sgpu.evaluation.calibration import ece
from sgpu.evaluation.comparison import holm
from sgpu.evaluation.delong import delong
from sgpu.evaluation.ranking import auroc
from sgpu.transfer.designs import Plan
from sgpu.transfer.guard import LeakageError
from sgpu.transfer.measure import Forecast, curve, measured, recalibration
from sgpu.transfer.rows import SourceCell, TransferRows

TARGET = source_cell("a", "x", 200)
TEST = TARGET.split == "test"
LABEL = TARGET.rows.label
LARGEST = TARGET.confidence["largest_eigenvalue"]


def forecast(design: str, probability: np.ndarray, **curve_of: object) -> Forecast:
    plan = replace(Plan(design, design, TARGET.cell, ()), **curve_of)  # type: ignore[arg-type]
    return Forecast(plan, probability, "f")


OWN = forecast("in_domain", expit(3 * LARGEST - 1.5))
POOLED = forecast("leave_both_out", expit(logit(OWN.probability) - 1.2 + 0.2 * np.sin(np.arange(200))))


def recalibrate(target: SourceCell = TARGET, **changed: object) -> list[dict[str, object]]:
    asked = {"name": "shift", "labels": [0, 25, 50], "seeds": 3, "n_resamples": 100, "seed": 0}
    return recalibration(target, POOLED, **{**asked, **changed})  # type: ignore[arg-type]


def test_metrics_are_of_the_test_rows_and_say_their_design() -> None:
    rows, _ = measured(TARGET, [OWN, POOLED], n_resamples=100, seed=0)
    value = {(row["method"], row["metric"]): row for row in rows}
    found = value["leave_both_out", "auroc"]
    assert found["value"] == pytest.approx(auroc(POOLED.probability[TEST], LABEL[TEST]))
    assert found["design"] == "leave_both_out" and found["n"] == TEST.sum()
    assert value["leave_both_out", "ece"]["value"] == pytest.approx(
        ece(POOLED.probability[TEST], LABEL[TEST])
    )
    assert value["largest_eigenvalue", "auroc"]["design"] == "training_free"


def test_a_missing_forecast_is_counted_and_not_taken_for_wrong() -> None:
    probability = POOLED.probability.copy()
    probability[np.flatnonzero(TEST)[:4]] = np.nan
    rows, _ = measured(TARGET, [OWN, forecast("leave_both_out", probability)], n_resamples=100, seed=0)
    row = next(row for row in rows if row["method"] == "leave_both_out" and row["metric"] == "auroc")
    kept = np.flatnonzero(TEST)[4:]
    assert (row["n"], row["n_missing"]) == (len(kept), 4)
    assert row["value"] == pytest.approx(auroc(probability[kept], LABEL[kept]))


def test_pooled_and_training_free_are_tested_against_the_in_domain_classifier() -> None:
    _, tests = measured(TARGET, [OWN, POOLED], n_resamples=100, seed=0)
    own = {
        row["method"]: row for row in tests if row["reference"] == "in_domain" and row["metric"] == "auroc"
    }
    assert set(own) == {"leave_both_out", "largest_eigenvalue"}
    p = {
        name: delong(scores[TEST], OWN.probability[TEST], LABEL[TEST]).p
        for name, scores in (("leave_both_out", POOLED.probability), ("largest_eigenvalue", LARGEST))
    }
    assert own["leave_both_out"]["p"] == pytest.approx(p["leave_both_out"])
    adjusted = holm([p["leave_both_out"], p["largest_eigenvalue"]])
    assert own["leave_both_out"]["p_holm"] == pytest.approx(adjusted[0])


def test_training_free_methods_are_tested_against_each_pooled_classifier() -> None:
    _, tests = measured(TARGET, [OWN, POOLED], n_resamples=100, seed=0)
    pairs = {(row["method"], row["reference"]) for row in tests}
    assert ("largest_eigenvalue", "leave_both_out") in pairs
    assert ("in_domain", "leave_both_out") not in pairs  # it stands there the other way round


def test_a_curve_has_a_point_for_each_size_over_its_seeds() -> None:
    drawn = [
        forecast("leave_both_out", np.roll(OWN.probability, seed * size), axis="cells", size=size, seed=seed)
        for size in (1, 2)
        for seed in (0, 1)
    ]
    rows = curve(TARGET, drawn, n_resamples=100, seed=0)
    first = next(row for row in rows if row["size"] == 1 and row["metric"] == "auroc")
    expected = np.mean([auroc(f.probability[TEST], LABEL[TEST]) for f in drawn if f.plan.size == 1])
    assert first["value"] == pytest.approx(expected) and first["seeds"] == 2


def test_labels_of_the_target_repair_a_shifted_classifier() -> None:
    rows = [row for row in recalibrate(labels=[0, 100]) if row["metric"] == "ece"]
    before, after = rows
    assert before["value"] == pytest.approx(ece(POOLED.probability[TEST], LABEL[TEST]))
    assert float(str(after["value"])) < float(str(before["value"]))
    assert after["difference"] == pytest.approx(float(str(after["value"])) - float(str(before["value"])))
    assert (before["seeds"], after["seeds"]) == (1, 3)


def test_the_labelled_sample_comes_from_outside_the_test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TransferRows] = []
    monkeypatch.setattr(measure, "check_sample", lambda sample, *_: seen.append(sample))
    recalibrate()
    sampled = {name for sample in seen for name in sample.keys["question_id"]}
    assert sampled and not sampled & set(TARGET.part("test").keys["question_id"])
    assert [len(sample) for sample in seen] == [0, 25, 25, 25, 50, 50, 50]
    assert set(seen[1].keys["question_id"]) < set(seen[4].keys["question_id"])


def test_a_test_row_that_a_broken_draw_lets_into_the_sample_fails_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        def permutation(self, rows: np.ndarray) -> np.ndarray:
            return np.concatenate([np.flatnonzero(TEST)[:1], rows])

    monkeypatch.setattr(measure.np.random, "default_rng", lambda seed: Broken())
    with pytest.raises(LeakageError, match="leak into calibration: 1 of 25"):
        recalibrate(labels=[25])


def test_a_sample_larger_than_the_target_has_is_a_row_that_says_so() -> None:
    last = recalibrate(labels=[0, 500])[-1]
    assert last["value"] is None and last["size"] == 500
    assert "130 labelled rows" in str(last["undefined"])


def test_equal_seeds_give_equal_rows() -> None:
    assert recalibrate() == recalibrate()
    assert recalibrate() != recalibrate(seed=1)
