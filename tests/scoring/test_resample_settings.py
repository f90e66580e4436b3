from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sgpu.scoring.resample_settings import ResampleSettings


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
