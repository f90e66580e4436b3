import numpy as np
import pandas as pd
import pytest

from sgpu.errors import DataError
from sgpu.evaluation import average_rank


def test_hand_computed_with_ties():
    # Ranks by cell: 1 2 3; 1.5 1.5 3; 3 1.5 1.5.
    found = average_rank({"a": [0.9, 0.8, 0.5], "b": [0.8, 0.8, 0.7], "c": [0.7, 0.6, 0.7]})
    assert found.rank == pytest.approx({"a": 5.5 / 3, "b": 5 / 3, "c": 7.5 / 3})
    assert found.best_in == {"a": 1.5, "b": 1.0, "c": 0.5}
    assert (found.n_cells, found.n_undefined) == (3, 0)


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_agrees_with_pandas(higher_is_better):
    table = pd.DataFrame(np.random.default_rng(0).integers(0, 6, (40, 5)) / 10, columns=list("abcde"))
    expected = table.rank(axis=1, ascending=not higher_is_better).mean().to_dict()
    found = average_rank({m: table[m].to_numpy() for m in table}, higher_is_better=higher_is_better)
    assert found.rank == pytest.approx(expected)
    assert sum(found.best_in.values()) == pytest.approx(40)


def test_cells_that_are_undefined_for_a_method_are_left_out_and_counted():
    found = average_rank({"a": [0.9, None, 0.2], "b": [0.8, 0.9, 0.3], "c": [0.1, 0.2, np.nan]})
    assert found.rank == {"a": 1, "b": 2, "c": 3}
    assert (found.n_cells, found.n_undefined) == (1, 2)


def test_nothing_defined_has_no_ranks():
    found = average_rank({"a": [np.nan], "b": [1.0]})
    assert np.isnan(list(found.rank.values())).all()
    assert (found.n_cells, found.n_undefined) == (0, 1)
    assert average_rank({}).rank == {}


def test_rounding_does_not_part_a_tie():
    assert average_rank({"a": [0.1 + 0.2], "b": [0.3]}).rank == {"a": 1.5, "b": 1.5}


def test_unequal_numbers_of_cells_are_refused():
    with pytest.raises(DataError, match=r"unequal numbers of cells \(a: \(2,\), b: \(1,\)\)"):
        average_rank({"a": [1, 2], "b": [1]})
