"""Settings and versions of a run, as they may be shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from sgpu.addresses import without_credentials
from sgpu.errors import DataError
from sgpu.visible import controls_shown

# Of summaries that do not say how far back they looked.
DAYS = 28
# What the page shows elsewhere, or what is not for reading.
_ELSEWHERE = {
    "accounting", "sketch", "verdict", "settings", "thresholds", "date", "quarantine", "training", "tracked",
    "formats",
}  # fmt: skip


def mapping(summary: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a summary; empty where there is none."""
    value = summary.get(name)
    return value if isinstance(value, Mapping) else {}


def window(summary: Mapping[str, Any]) -> int:
    """How many days back the verdict looked; DataError for what is no number of days."""
    days = mapping(summary, "thresholds").get("days", DAYS)
    if isinstance(days, bool) or not isinstance(days, int) or days < 1:
        raise DataError(f"a summary looked back {ascii(days)[:40]} days; score the day again")
    return days


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Model, snapshot, times and versions of the run, as (name, text)."""
    found = []
    for key, value in summary.items():
        if key in _ELSEWHERE or value is None:
            continue
        for name, item in value.items() if isinstance(value, Mapping) else [("", value)]:
            text = item if isinstance(item, str) else json.dumps(item)
            found.append((public(f"{key} {name}".replace("_", " ").strip()), public(text)))
    return found


def as_yaml(settings: Mapping[str, Any]) -> str:
    """The settings of the run."""
    plain = json.loads(json.dumps(dict(settings), default=str))
    return public(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100))


def public(text: str) -> str:
    """Without user and password of an address, and with control characters made visible; not yet escaped."""
    return controls_shown(without_credentials(text))
