"""How requests with one answer are asked again: where, how many, and at what price."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from sgpu.addresses import exposes_key
from sgpu.study.specs import Strict


class ResampleSettings(Strict):
    """A ``share`` of requests is asked, at most ``requests`` and ``tokens`` (questions and answers) a run.

    A run is one day's logs as they are at that time: a day that is looked at again because rows came late, or
    by another model, is another run with another budget. Tries that fail count with what they may have cost.
    The server speaks OpenAI's chat protocol; its key is read from the environment variable ``api_key_env``.
    ``requests_per_minute`` is for the whole run, retries included. ``timeout_s``: for one try, from its start
    to the last byte. ``plain_http`` allows a key to be sent unencrypted to another machine.
    """

    # An address may hold a password, which is then refused but must not be shown.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    base_url: str
    model: str | None = None  # default: the one that the log names
    api_key_env: str | None = None
    share: float = Field(default=0.01, gt=0, le=1)
    requests: int = Field(default=1000, ge=1)
    tokens: int | None = Field(default=None, ge=1)  # default: as many as the requests may use
    n: int = Field(default=10, ge=2, le=128)
    temperature: float = Field(default=1.0, gt=0, le=2)  # at 0 all answers are the same
    top_p: float = Field(default=0.9, gt=0, le=1)
    max_tokens: int = Field(default=256, ge=1)
    requests_per_minute: int | None = Field(default=None, ge=1)
    concurrency: int = Field(default=8, ge=1, le=256)
    max_retries: int = Field(default=4, ge=0, le=20)
    timeout_s: float = Field(default=60.0, gt=0)
    seed: int = 0
    plain_http: bool = False

    @field_validator("base_url")
    @classmethod
    def _an_address_and_nothing_else(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("base_url is http://host/v1 or https://host/v1")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("base_url holds no user, key or query; name the key's variable in api_key_env")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _keys_are_encrypted(self) -> Self:
        if self.api_key_env and exposes_key(self.base_url) and not self.plain_http:
            host = urlsplit(self.base_url).hostname
            raise ValueError(
                f"the key in ${self.api_key_env} would travel unencrypted to {host}: use https://, "
                "or set plain_http in a network of your own"
            )
        return self
