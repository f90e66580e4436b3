from __future__ import annotations

import pytest

from sgpu.visible import exposes_key, masked, without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:pw@host:9/a", "http://host:9/a"),
        ("http://user@host", "http://host"),
        ("postgresql+psycopg2://u:p@ss@host/db", "postgresql+psycopg2://host/db"),
        ("http://u:p/w@host/db", "http://host/db"),
        ("http://u:p#w?@host/db", "http://host/db"),
        ("https://host/v1?key=hunter2&a=b#t", "https://host/v1?key=***&a=***#t"),
        ("no answer of 'https://host/v1?key=hunter2': 3", "no answer of 'https://host/v1?key=***': 3"),
        ("from http://a:b@x to http://c:d@y, mail to me@home", "from http://x to http://y, mail to me@home"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("connect to http://host:5000: refused", "connect to http://host:5000: refused"),
        ("http://host/a@b", "http://host/a@b"),
        ("models:/answers@champion", "models:/answers@champion"),
        ("file:///home/me@work/x", "file:///home/me@work/x"),
    ],
)
def test_secrets_of_an_address_are_not_shown(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


def test_only_addresses_of_settings_are_masked() -> None:
    settings = {"models": [{"base_url": "http://u:p@h/v1"}], "prompt": "Is //a@b a path? {question}", "n": 3}
    assert masked(settings) == {**settings, "models": [{"base_url": "http://h/v1"}]}


@pytest.mark.parametrize(
    "address", ["https://host/v1", "http://127.0.0.1/v1", "http://[::1]/v1", "http://localhost"]
)
def test_a_key_is_safe_on_its_way(address: str) -> None:
    assert not exposes_key(address)


@pytest.mark.parametrize(
    "address", ["http://host/v1", "http://10.0.0.1/v1", "HTTP://host", "http://localhost.evil.org"]
)
def test_a_key_can_be_read_on_its_way(address: str) -> None:
    assert exposes_key(address)
