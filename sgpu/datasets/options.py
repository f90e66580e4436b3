"""The options that a study file gives to a data set, checked before its source is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sgpu.errors import UsageError
from sgpu.registry import unknown_name

Settings = TypeVar("Settings", bound=BaseModel)


class NoOptions(BaseModel):
    """For a data set that has nothing to choose."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_options(dataset: str, settings: type[Settings], options: Mapping[str, Any]) -> Settings:
    """The options as ``settings``. Raises UsageError that names each key at fault and the keys that exist."""
    try:
        return settings(**options)
    except ValidationError as error:
        faults = "; ".join(_fault(dict(entry), list(settings.model_fields)) for entry in error.errors())
        known = ", ".join(settings.model_fields) or "none"
        raise UsageError(f"data set {dataset!r}: {faults}. Settings: {known}.") from error


def _fault(entry: Mapping[str, Any], known: list[str]) -> str:
    where = ".".join(map(str, entry["loc"]))
    if entry["type"] == "extra_forbidden":
        return unknown_name("option", where, known).rstrip(".")
    return f"{where}: {entry['msg']}"
