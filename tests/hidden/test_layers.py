from __future__ import annotations

import pytest

from sgpu.errors import UsageError
from sgpu.hidden.layers import layer_index, layer_indices


@pytest.mark.parametrize(
    ("name", "index"),
    [("last", 30), ("middle", 15), (0, 0), (7, 7), (30, 30), (-1, 30), (-31, 0), (0.2, 6), (1.0, 30)],
)
def test_names_of_the_layers_of_a_model_with_thirty(name: str | int | float, index: int) -> None:
    assert layer_index(name, 30) == index


@pytest.mark.parametrize("n_layers", [1, 2, 5, 28, 33])
def test_middle_is_half_the_number_of_hidden_states_with_the_embedding(n_layers: int) -> None:
    assert layer_index("middle", n_layers) == int(len(range(n_layers + 1)) / 2)


def test_layers_come_ascending_and_once() -> None:
    assert layer_indices(["last", 4, "middle", 2, -1], 4) == [2, 4]
    assert layer_indices(["middle", "all"], 3) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", [31, -32, 1.5, -0.5, "first"])
def test_a_layer_that_is_not_there_is_refused_with_the_choices(name: str | int | float) -> None:
    with pytest.raises(UsageError, match=r"no layer .* has 30.*'middle', 'last' or 'all'"):
        layer_index(name, 30)
