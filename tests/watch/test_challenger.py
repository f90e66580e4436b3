"""Champion against challenger from counts, against the same on rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm, ttest_1samp

from sgpu.evaluation.delong import delong
from sgpu.evaluation.ranking import auroc
from sgpu.fitted.profile import binned
from sgpu.watch.challenger import areas_of, champion_auroc, compare_models
from tests.watch.made_scores import scores, sketch


@pytest.fixture(scope="module")
def rows() -> dict[str, np.ndarray]:
    """Labelled rows of `scores(3000, 1, ...)`: what both said, and whether it was right."""
    made = scores(3000, 1, labelled=0.3, challenger_noise=0.8).to_pydict()
    kept = [i for i, label in enumerate(made["label"]) if label is not None]
    names = {"one": "probability", "other": "shadow_probability", "label": "label"}
    return {name: np.array([made[column][i] for i in kept], dtype=float) for name, column in names.items()}


def test_the_paired_areas_are_those_of_delong_on_binned_rows(rows: dict[str, np.ndarray]) -> None:
    found = compare_models(sketch(3000, 1, labelled=0.3, challenger_noise=0.8).total())
    one, other = (binned(rows[name]).astype(float) for name in ("one", "other"))
    expected = delong(one, other, rows["label"])
    assert found.auroc[0].value == pytest.approx(auroc(one, rows["label"]), abs=1e-12)
    assert found.auroc[1].value == pytest.approx(auroc(other, rows["label"]), abs=1e-12)
    difference = found.auroc_difference
    ours = [difference.value, difference.lo, difference.hi, difference.p]
    assert ours == pytest.approx([expected.value, expected.lo, expected.hi, expected.p], abs=1e-9)


def test_binning_moves_an_area_by_less_than_a_hundredth(rows: dict[str, np.ndarray]) -> None:
    found = compare_models(sketch(3000, 1, labelled=0.3, challenger_noise=0.8).total())
    assert found.auroc[0].value == pytest.approx(auroc(rows["one"], rows["label"]), abs=0.01)


def test_brier_scores_and_their_difference_are_exact(rows: dict[str, np.ndarray]) -> None:
    found = compare_models(sketch(3000, 1, labelled=0.3, challenger_noise=0.8).total())
    errors = [(rows[name] - rows["label"]) ** 2 for name in ("one", "other")]
    assert found.rows == len(rows["label"]) and found.right == rows["label"].sum()
    assert found.brier == pytest.approx((errors[0].mean(), errors[1].mean()), abs=1e-9)
    gain = errors[0] - errors[1]
    half = 1.959964 * gain.std(ddof=1) / np.sqrt(len(gain))
    difference = found.brier_difference
    assert difference.value == pytest.approx(gain.mean(), abs=1e-9)
    assert (difference.lo, difference.hi) == pytest.approx((gain.mean() - half, gain.mean() + half), abs=1e-7)
    # The normal in place of Student's distribution: the statistic is the same.
    assert difference.p == pytest.approx(2 * norm.sf(abs(ttest_1samp(gain, 0).statistic)), rel=1e-4)


def test_the_noisier_model_loses_and_the_same_model_draws() -> None:
    worse = compare_models(sketch(4000, 2, labelled=1.0, challenger_noise=2.0).total())
    assert worse.brier_difference.hi is not None and worse.brier_difference.hi < 0
    assert worse.auroc_difference.lo is not None and worse.auroc_difference.lo > 0
    same = compare_models(sketch(4000, 2, labelled=1.0, challenger_noise=0.0).total())
    assert (same.brier_difference.value, same.brier_difference.p) == (pytest.approx(0, abs=1e-9), 1.0)
    assert (same.auroc_difference.value, same.auroc_difference.p) == (pytest.approx(0, abs=1e-12), 1.0)


def test_few_labels_have_values_but_no_interval() -> None:
    few = compare_models(sketch(30, 3, labelled=1.0, challenger_noise=1.0).total())
    assert few.auroc[0].value is not None and few.auroc[0].lo is None
    assert few.brier_difference.lo is None


def test_without_labels_there_is_nothing_to_compare() -> None:
    none = compare_models(sketch(50, 3, challenger_noise=1.0).total())
    assert none.rows == 0 and none.brier == (None, None) and none.auroc_difference.value is None
    assert champion_auroc(sketch(50, 3).total()).value is None


def test_the_champions_area_counts_rows_without_a_challenger_too() -> None:
    group = sketch(2000, 4, labelled=0.5).total()
    made = scores(2000, 4, labelled=0.5).to_pydict()
    kept = [i for i, label in enumerate(made["label"]) if label is not None]
    p, y = (np.array([made[name][i] for i in kept], dtype=float) for name in ("probability", "label"))
    found = champion_auroc(group)
    assert compare_models(group).rows == 0
    assert found.value == pytest.approx(auroc(binned(p).astype(float), y), abs=1e-12)
    assert found.lo is not None and found.hi is not None and found.lo < found.value < found.hi


def test_one_row_of_a_label_has_an_area_but_no_variance() -> None:
    areas, covariance = areas_of({(40, 30, 1): 1, (10, 35, 0): 3})
    assert areas.tolist() == [1.0, 0.0] and np.isnan(covariance).all()


def test_areas_of_counts_are_those_that_were_published_before_and_of_the_rows_one_by_one() -> None:
    cells = {
        (40, 30, 1): 7, (40, 31, 0): 2, (12, 30, 1): 1, (12, 9, 0): 5,
        (25, -1, 0): 3, (30, 30, 1): 4, (49, 20, 0): 1,
    }  # fmt: skip
    areas, covariance = areas_of(cells)
    assert areas == pytest.approx([0.7386363636363636, 0.8181818181818182], abs=1e-12)
    before = [[0.0139710639452375, 0.0081267217630854], [0.0081267217630854, 0.01487603305785124]]
    assert covariance == pytest.approx(np.array(before), abs=1e-12)
    one, other, label = np.repeat(np.array([*cells], dtype=float), [*cells.values()], axis=0).T
    paired = delong(one, other, label)
    assert areas[0] - areas[1] == pytest.approx(paired.value, abs=1e-12)
    assert np.array([1, -1]) @ covariance @ [1, -1] == pytest.approx(paired.se**2, abs=1e-12)
