"""Strict majority over the readable votes."""

from __future__ import annotations

import pytest

from sgpu.judges.majority import majority

T, F = True, False


@pytest.mark.parametrize(
    ("votes", "label", "n_missing", "tie"),
    [
        ([T, T, F], 1, 0, False),
        ([T, F, F], 0, 0, False),
        ([T] * 10 + [F] * 10, 0, 0, True),
        ([T] * 11 + [F] * 9, 1, 0, False),
        ([T, None, None], 1, 2, False),
        ([T, F, None], 0, 1, True),
        ([None, None], None, 2, False),
        ([], None, 0, False),
    ],
)
def test_majority(votes: list[bool | None], label: int | None, n_missing: int, tie: bool) -> None:
    assert majority(votes) == (label, n_missing, tie)
