"""Who answers for which number of answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.constructed import constructed_sets
from sgpu.errors import DataError, IntegrityError
from sgpu.gp import GPClassifier
from sgpu.gp.heads import OtherSizes
from sgpu.gp.representation import size_free, sized_rows

SETS = constructed_sets(80, answers=8, seed=0)


def fitted(n: int) -> GPClassifier:
    return GPClassifier(inducing=10).fit(SETS.spectra(n), SETS.label)


@pytest.fixture(scope="module")
def any_size() -> GPClassifier:
    rows = sized_rows({n: SETS.spectra(n) for n in (2, 5, 8)}, 0, 1000)
    return GPClassifier(inducing=10).fit(rows.x, SETS.label[rows.question])


@pytest.fixture(scope="module")
def own() -> GPClassifier:
    return fitted(8)


@pytest.mark.parametrize(
    ("n", "name", "read"),
    [(8, "own", 8), (5, "head 5", 5), (2, "size_free", 2), (7, "size_free", 7), (30, "size_free", 30)],
)
def test_a_head_of_the_size_comes_first_then_the_size_free_one(
    own: GPClassifier, any_size: GPClassifier, n: int, name: str, read: int
) -> None:
    head = OtherSizes({5: fitted(5)}, any_size).head(n, own, 8)
    assert (head.name, head.n) == (name, read)


@pytest.mark.parametrize(("n", "name", "read"), [(7, "head 5", 5), (30, "own", 8)])
def test_heads_alone_read_as_many_answers_as_the_next_smaller_one(
    own: GPClassifier, n: int, name: str, read: int
) -> None:
    head = OtherSizes({5: fitted(5)}).head(n, own, 8)
    assert (head.name, head.n) == (name, read)


def test_fewer_answers_than_any_head_are_refused(own: GPClassifier) -> None:
    with pytest.raises(DataError, match=r"4 answers; the model was fitted to N = 8 .* fewer than 5"):
        OtherSizes({5: fitted(5)}).head(4, own, 8)


def test_one_answer_is_refused(own: GPClassifier, any_size: GPClassifier) -> None:
    with pytest.raises(DataError, match="1 answers") as caught:
        OtherSizes({}, any_size).head(1, own, 8)
    assert "nothing for fewer than 2. Sample as many." in str(caught.value)


def test_the_size_free_head_predicts_from_shares(own: GPClassifier, any_size: GPClassifier) -> None:
    spectra = SETS.spectra(6)
    head = OtherSizes({}, any_size).head(6, own, 8)
    expected = any_size.predict(size_free(spectra)).probability
    assert head.predict(spectra).probability == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rows", [1, 3, 17, 79])
def test_a_row_has_the_same_numbers_whatever_rows_are_with_it(
    own: GPClassifier, any_size: GPClassifier, rows: int
) -> None:
    for n in (6, 8):
        head, spectra = OtherSizes({}, any_size).head(n, own, 8), np.tile(SETS.spectra(n), (4, 1))
        together = head.predict(spectra)
        part = np.random.default_rng(rows).permutation(len(spectra))[:rows]
        for ours, theirs in zip(head.predict(spectra[part]), together, strict=True):
            assert np.array_equal(ours, theirs[part])


def test_no_rows_are_no_predictions(own: GPClassifier) -> None:
    head = OtherSizes().head(8, own, 8)
    assert head.predict(np.empty((0, 8))).probability.shape == (0,)


def test_a_classifier_of_another_size_is_refused(own: GPClassifier) -> None:
    with pytest.raises(DataError, match="head of 4 answers was fitted to 8"):
        OtherSizes({4: own})
    with pytest.raises(DataError, match="size-free classifier was fitted to 8 columns"):
        OtherSizes({}, own)


def test_heads_come_back_from_their_folder(any_size: GPClassifier, tmp_path: Path) -> None:
    written = OtherSizes({5: fitted(5)}, any_size).save(tmp_path)
    assert sorted(written) == ["heads/5", "size_free"]
    loaded = OtherSizes.load(tmp_path, json.loads(json.dumps(written)))
    assert list(loaded.by_n) == [5] and loaded.size_free is not None
    query = size_free(SETS.spectra(3))
    assert np.array_equal(loaded.size_free.predict(query).sd, any_size.predict(query).sd)


def test_a_head_that_was_exchanged_is_refused(any_size: GPClassifier, tmp_path: Path) -> None:
    written = OtherSizes({5: fitted(5)}).save(tmp_path)
    GPClassifier(inducing=11).fit(SETS.spectra(5), SETS.label).save(tmp_path / "heads" / "5")
    with pytest.raises(IntegrityError, match="not the classifier that was saved"):
        OtherSizes.load(tmp_path, written)


def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="no classifier of other sizes"):
        OtherSizes.load(tmp_path, {"../elsewhere": "0"})
