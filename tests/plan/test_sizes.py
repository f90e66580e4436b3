"""Granted sizes, against the sizes that the sources hold."""

from __future__ import annotations

import pytest

from sgpu.datasets.base import DATASETS
from sgpu.errors import DataError
from sgpu.plan.cells import Sizes, grant_sizes


@pytest.mark.parametrize(
    ("dataset", "requested", "expected"),
    [
        ("advqa", (6_000, 2_000), (6_000, 2_000)),
        ("vqa-rad", (2_000, 500), (1_793, 451)),
        ("ok-vqa", (9_000, 5_000), (9_000, 5_000)),
        ("vizwiz", (10_000, 2_000), (10_000, 2_000)),
        ("cifar-10", (10_000, 5_000), (10_000, 5_000)),
        ("imagenette", (10_000, 5_000), (9_469, 3_925)),
        ("triviaqa", (10_000, 1_000), (10_000, 1_000)),
        ("popqa", (10_000, 1_000), (10_000, 1_000)),
        ("gsm8k", (0, 1_319), (0, 1_319)),
    ],
)
def test_the_papers_requests_are_granted_as_far_as_rows_exist(
    dataset: str, requested: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert grant_sizes(Sizes(*requested), DATASETS.get(dataset).pools) == Sizes(*expected)


def test_one_pool_fills_test_first() -> None:
    assert grant_sizes(Sizes(90, 30), {"all": 100}) == Sizes(70, 30)
    assert grant_sizes(Sizes(90, 300), {"all": 100}) == Sizes(0, 100)


def test_without_pools_nothing_is_known() -> None:
    assert grant_sizes(Sizes(90, 30), {}) is None


def test_other_pools_are_refused() -> None:
    with pytest.raises(DataError, match="validation"):
        grant_sizes(Sizes(1, 1), {"train": 1, "validation": 1})
