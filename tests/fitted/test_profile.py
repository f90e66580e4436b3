"""The profile of a model's training: what it keeps, and that changed files are refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from sgpu.errors import DataError, IntegrityError
from sgpu.fitted.profile import (
    BINS,
    AcceptanceRule,
    TrainingProfile,
    drawn_rows,
    probability_histogram,
    shares_of,
)
from sgpu.stages.labelled_sets import LabelledSets
from sgpu.watch.comparisons import training_reference
from sgpu.watch.two_sample_tests import compare_means

RULE = AcceptanceRule(alpha=0.1, delta=0.05, cut=0.83, n_calibration=120)


def made(rule: AcceptanceRule | None = RULE) -> TrainingProfile:
    spectra = [np.array([3.0, 1.0]), np.array([2.0, 1.0, 0.0]), np.arange(30.0)[::-1] / 14.5]
    return TrainingProfile.of(spectra, [1, 0, 1], [0.2, 0.9, 0.9, 1.0], [0, 1, 1, 1], seed=3, rule=rule)


@pytest.mark.parametrize("rule", [RULE, None])
def test_a_profile_comes_back_from_its_files(tmp_path: Path, rule: AcceptanceRule | None) -> None:
    profile = made(rule)
    loaded = TrainingProfile.load(tmp_path, profile.save(tmp_path))
    for name in ("shares", "sizes", "histogram"):
        assert np.array_equal(getattr(loaded, name), getattr(profile, name))
    without = {"shares": profile.shares, "sizes": profile.sizes, "histogram": profile.histogram}
    assert replace(loaded, **without) == replace(profile, **without)


def test_equal_profiles_are_equal_bytes(tmp_path: Path) -> None:
    assert made().save(tmp_path / "a") == made().save(tmp_path / "b")


def test_it_counts_rows_and_rates(tmp_path: Path) -> None:
    profile = made()
    assert (profile.training_rows, profile.held_out_rows) == (3, 4)
    assert profile.base_rate == pytest.approx(2 / 3)
    assert profile.held_out_base_rate == 0.75
    assert profile.sizes.tolist() == [2, 3, 30]


def test_no_held_out_rows_are_no_rate_and_survive_json(tmp_path: Path) -> None:
    profile = TrainingProfile.of([np.ones(2)], [1], [], [], seed=0)
    assert np.isnan(TrainingProfile.load(tmp_path, profile.save(tmp_path)).held_out_base_rate)


def test_shares_are_the_largest_20_eigenvalues_over_n() -> None:
    spectrum = np.sort(np.random.default_rng(0).random(30))[::-1]
    spectrum *= 30 / spectrum.sum()
    assert shares_of(spectrum[None])[0] == pytest.approx(spectrum[:20] / 30)
    few = shares_of(np.array([[3.0, 1.0, 0.0, 0.0]]))[0]
    assert few.tolist() == pytest.approx([0.75, 0.25, *[0.0] * 18])


def test_shares_of_one_answer_are_refused() -> None:
    with pytest.raises(DataError, match="at least 2"):
        shares_of(np.ones((1, 1)))


def test_the_histogram_is_that_of_numpy() -> None:
    values = np.concatenate([np.random.default_rng(1).random(5000), [0.0, 1.0]])
    assert probability_histogram(values).tolist() == np.histogram(values, bins=BINS, range=(0, 1))[0].tolist()


@pytest.mark.parametrize("value", [-0.01, 1.01, np.nan])
def test_what_is_no_probability_is_refused(value: float) -> None:
    with pytest.raises(DataError, match="row 1"):
        probability_histogram([0.5, value])


def test_at_most_2000_sets_are_drawn_by_seed() -> None:
    first = drawn_rows(5000, 0)
    assert len(first) == 2000 == len(set(first.tolist()))
    assert np.array_equal(first, drawn_rows(5000, 0))
    assert not np.array_equal(first, drawn_rows(5000, 1))
    assert drawn_rows(3, 9).tolist() == [0, 1, 2]


@pytest.mark.parametrize("size", [1, 8])
def test_groups_of_held_out_rows_raise_no_more_false_alarms_than_stated(size: int) -> None:
    """Rows of a group agree but for a little; the traffic of unchanged days has a group for each row."""
    rng, repeats, groups = np.random.default_rng(5), 400, 30
    alarms = {"one of each group": 0, "all rows": 0}
    for repeat in range(repeats):
        split, names = np.full(groups * size, "test"), [f"g{row // size}" for row in range(groups * size)]
        ids, label = [str(row) for row in range(len(names))], np.ones(len(names), dtype=np.int64)
        sets = LabelledSets(ids, [["a"]] * len(ids), label, split, 6, "given", {}, (), "own", "0" * 64, names)
        probability = np.clip(np.repeat(rng.beta(2, 2, groups), size) + rng.normal(0, 0.03, len(ids)), 0, 1)
        today = probability_histogram(rng.beta(2, 2, 61))
        for name, kept in zip(alarms, (sets.independent("test", repeat), np.arange(len(ids))), strict=True):
            profile = TrainingProfile.of([], label, probability[kept], label[kept], seed=0)
            p = compare_means(today, training_reference(profile).histogram, 400, repeat).p
            alarms[name] += p <= 0.05
    assert alarms["one of each group"] <= repeats * 0.05 + 3 * math.sqrt(repeats * 0.05 * 0.95)
    # The variance of the mean of all rows is their design effect times as large, which is nearly their size.
    inflated = math.sqrt((1 / 61 + 1 / groups) / (1 / 61 + 1 / (groups * size)))
    expected = 2 * norm.sf(norm.isf(0.025) / inflated)
    assert alarms["all rows"] / repeats == pytest.approx(expected, abs=3 * math.sqrt(expected / repeats))


def test_a_rule_accepts_from_its_cut_on_and_never_nan() -> None:
    assert RULE.accepts(np.array([0.82, 0.83, 1.0, np.nan])).tolist() == [False, True, True, False]


@pytest.mark.parametrize("values", [{"alpha": 0.0}, {"delta": 1.0}, {"cut": 1.1}, {"n_calibration": 0}])
def test_a_rule_out_of_range_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(DataError, match="alpha and delta"):
        replace(RULE, **values)


@pytest.mark.parametrize("file", ["profile.safetensors", "profile.json"])
def test_one_changed_byte_is_refused(tmp_path: Path, file: str) -> None:
    digest = made().save(tmp_path)
    content = bytearray((tmp_path / file).read_bytes())
    content[-2] ^= 1
    (tmp_path / file).write_bytes(content)
    with pytest.raises(IntegrityError):
        TrainingProfile.load(tmp_path, digest)


def test_a_loosened_rule_is_refused(tmp_path: Path) -> None:
    digest = made().save(tmp_path)
    content = json.loads((tmp_path / "profile.json").read_text())
    content["rule"]["cut"] = 0.1
    (tmp_path / "profile.json").write_text(json.dumps(content))
    with pytest.raises(IntegrityError, match="was saved with"):
        TrainingProfile.load(tmp_path, digest)


def test_a_histogram_of_other_rows_is_refused() -> None:
    with pytest.raises(DataError, match="counts 4 rows"):
        replace(made(), held_out_rows=5)
