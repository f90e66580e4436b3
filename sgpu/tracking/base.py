"""Tracking without MLflow: what a tracker takes and gives, and settings as its parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHAMPION = "champion"
SQLITE = "sqlite:///"


@dataclass(frozen=True)
class _Numbered:
    """A version of a registered model by its number."""

    name: str
    version: int

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


@dataclass(frozen=True)
class RegisteredFit(_Numbered):
    """A version of a registered model; ``created`` is False where the same bundle was registered before."""

    created: bool


@dataclass(frozen=True)
class Version(_Numbered):
    """One version of a registered model; ``sha256`` is that of its bundle, None if it was not recorded."""

    aliases: tuple[str, ...]
    sha256: str | None
    created: str
    n_answers: str | None


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as dotted keys; lists and empty mappings stay whole, as JSON."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value, default=str)
    return flat
