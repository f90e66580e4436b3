"""What runs of scoring are asked to do, and what is refused."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from sgpu.scoring.settings import ResampleSettings, ScoreSettings

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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base_url": "ftp://host/v1"}, "http://host/v1"),
        ({"base_url": "https:///v1"}, "http://host/v1"),
        ({"base_url": "https://user:secret@host/v1"}, "no user"),
        ({"base_url": "https://host/v1?key=secret"}, "no user"),
        ({"base_url": "http://10.0.0.7/v1", "api_key_env": "K"}, "unencrypted"),
        ({"base_url": "http://localhost.example.com/v1", "api_key_env": "K"}, "unencrypted"),
        ({"base_url": "http://h/v1", "n": 1}, "greater than or equal to 2"),
        ({"base_url": "http://h/v1", "temperature": 0}, "greater than 0"),
        ({"base_url": "http://h/v1", "budget": 3}, "Extra inputs"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        ResampleSettings(**settings)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "https://api.example.com/v1", "api_key_env": "K"},
        {"base_url": "http://127.0.0.1:8000/v1", "api_key_env": "K"},
        {"base_url": "http://[::1]:8000/v1", "api_key_env": "K"},
        {"base_url": "http://localhost:8000/v1", "api_key_env": "K"},
        {"base_url": "http://vllm.models.svc/v1"},
        {"base_url": "http://vllm.models.svc/v1", "api_key_env": "K", "plain_http": True},
    ],
)
def test_a_key_may_travel_encrypted_or_within_the_machine_or_where_it_is_allowed(
    settings: dict[str, Any],
) -> None:
    assert ResampleSettings(**settings).base_url == settings["base_url"]
