"""A run that is killed at a chosen instant: before any write, deletion or commit, so after the one before.

Death is an exception that nothing catches. It differs from a killed process in that locks are given back,
which for a process the operating system does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sgpu.scoring import publish
from sgpu.storage.location import Location


class Killed(BaseException):
    """The process is gone."""


class Instants:
    """Counts the instants at which a run can die, and ends it at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0
        self._last: int | None = None
        for owner, name in (
            (Location, "write_bytes"),
            (Location, "delete"),
            (publish, "commit"),
        ):
            monkeypatch.setattr(owner, name, self._watched(getattr(owner, name)))

    def kill_at(self, instant: int | None) -> None:
        """Start to count; None: nobody dies."""
        self.passed, self._last = 0, instant

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self._pass()
            return function(*given, **named)

        return call

    def _pass(self) -> None:
        if self._last is not None and self.passed >= self._last:
            raise Killed
        self.passed += 1
