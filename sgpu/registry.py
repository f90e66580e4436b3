"""Named things that are looked up by a study: one entry each, imported only when asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

from sgpu.errors import MissingDependencyError, UsageError


class Registry:
    """Maps a name to the import path ``module:attribute`` of what it stands for.

    Paths instead of objects keep heavy libraries out of a process that only wants to know the names.
    """

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def names(self) -> list[str]:
        return sorted(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def check(self, name: str) -> str:
        """Return ``name`` if it is registered; raise UsageError that lists what exists otherwise."""
        if name not in self._entries:
            raise UsageError(unknown_name(self.kind, name, self.names()))
        return name

    def get(self, name: str) -> Any:
        """Import and return the object; MissingDependencyError says which package is absent."""
        module, _, attribute = self._entries[self.check(name)].partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"{self.kind} {name!r} needs the package {error.name!r}, which is not installed. "
                "Run `sgpu doctor` to see what is missing and how to get it."
            ) from error


def unknown_name(kind: str, name: str, known: list[str]) -> str:
    """The message for a name that is not known: what exists, and the nearest spelling."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {name!r}.{hint} Known: {', '.join(known) or 'none'}."
