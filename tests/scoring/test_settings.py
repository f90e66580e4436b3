from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from sgpu.scoring.settings import ScoreSettings

DAY = date(2026, 11, 20)


def settings(**other: Any) -> ScoreSettings:
    return ScoreSettings(**{"logs": "logs", "out": "out", "model": "m", "date": DAY, **other})


def test_late_days_come_before_the_day_oldest_first() -> None:
    assert [day.day for day in settings(late_days=2).days()] == [18, 19, 20]


def test_rescoring_a_day_leaves_the_days_before_it_alone() -> None:
    assert settings(rescore=True).days() == [DAY]


def test_a_range_is_scored_as_it_is() -> None:
    assert [day.day for day in settings(start=date(2026, 11, 19)).days()] == [19, 20]


def test_ids_are_looked_up_on_both_sides_of_the_day() -> None:
    assert [day.day for day in settings(late_days=1).window(DAY)] == [19, 20, 21]


def test_places_may_be_in_object_storage() -> None:
    assert settings(logs="s3://bucket/logs", out="s3://bucket/out").out == "s3://bucket/out"


@pytest.mark.parametrize(
    "wrong",
    [
        {"lat_days": 2},
        {"start": date(2026, 11, 21)},
        {"out": "ftp://x/y"},
        {"max_bad": 2},
        {"workers": -1},
        {"group_window_s": 50_000},
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**wrong)


def test_only_what_decides_the_rows_is_part_of_the_key() -> None:
    assert settings(workers=1, device="cpu", max_bad=0.5).content() == settings().content()
    assert settings(rescore=True).content() != settings().content()
