"""Named things that a study looks up, our own and those of installed plug-ins; imported when asked for."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sgpu import __version__
from sgpu.errors import IntegrityError, MissingDependencyError, PluginError, UsageError

OWN = "sgpu"
PLUGIN_REMEDY = "If a plug-in brings it, install its package (for the image demo: examples/easy_vqa)."
# Names become names of folders and of table partitions.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Entry:
    """Where a named thing is, ``path`` being ``module:attribute``, and the distribution that brings it."""

    path: str
    package: str = OWN
    version: str = __version__

    @property
    def is_plugin(self) -> bool:
        return self.package != OWN

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


class Registry:
    """Maps a name to the import path ``module:attribute`` of what it stands for.

    Paths instead of objects keep heavy libraries out of a process that only wants to know the names.
    Plug-ins are the entry points of the ``group`` in the metadata of installed distributions, and nothing
    else: no name is ever taken for a path. All methods raise PluginError for a plug-in whose name exists.
    """

    def __init__(
        self, kind: str, entries: Mapping[str, str], group: str | None = None, reserved: Collection[str] = ()
    ) -> None:
        """``reserved``: words that stand for something else where a name is given."""
        self.kind, self.group = kind, group
        self._entries, self._reserved = dict(entries), reserved

    def __iter__(self) -> Iterator[str]:
        """Our own names in the order in which they are registered, then those of plug-ins by name."""
        return iter(self._all())

    def __contains__(self, name: object) -> bool:
        return name in self._all()

    def names(self) -> list[str]:
        return sorted(self)

    def check(self, name: str) -> str:
        """Return ``name`` if it is registered; raise UsageError that lists what exists otherwise."""
        if name not in self:
            message = unknown_name(self.kind, name, self.names())
            raise UsageError(f"{message} {PLUGIN_REMEDY}" if self.group else message)
        return name

    def entry(self, name: str) -> Entry:
        """Where it is and who brings it, without an import; UsageError as `check`."""
        return self._all()[self.check(name)]

    def plugins(self, *names: str) -> dict[str, str]:
        """Distribution and version of those that are plug-ins, for the fingerprint of what they make.

        Empty where all names are our own, or not registered at all: then the fingerprint stays what it was.
        """
        entries = {name: entry for name, entry in self._all().items() if entry.is_plugin and name in names}
        return {f"plug-in {self.kind} {name}": str(entry) for name, entry in entries.items()}

    def same_plugins(self, recorded: Mapping[str, str], name: str, what: str) -> None:
        """Raise IntegrityError unless ``what`` was made with the plug-in, or none, that the name has here."""
        if (present := self.plugins(name)) != dict(recorded):
            raise IntegrityError(
                f"{what} was fitted with {dict(recorded) or 'no plug-in'}, and here is "
                f"{present or 'no plug-in'}: install the version that it was fitted with, or fit again"
            )

    def get(self, name: str) -> Any:
        """Import and return the object.

        MissingDependencyError says which package is absent, PluginError why a plug-in cannot be used.
        """
        entry = self.entry(name)
        module, _, attribute = entry.path.partition(":")
        try:
            made = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"{self.kind} {name!r} needs the package {error.name!r}, which is not installed. "
                "Run `sgpu doctor` to see what is missing and how to get it."
            ) from error
        except Exception as error:
            if not entry.is_plugin:
                raise
            raise PluginError(
                f"{self.kind} {name!r} of {entry} cannot be loaded from {entry.path}: "
                f"{type(error).__name__}: {error}. Mend or uninstall the package."
            ) from error
        own_name = getattr(made, "name", name)
        if entry.is_plugin and isinstance(own_name, str) and own_name != name:
            raise PluginError(
                f"{self.kind} {name!r} of {entry} calls itself {own_name!r} in {entry.path}; give it "
                "the name of its entry point."
            )
        return made

    def _all(self) -> dict[str, Entry]:
        own = {name: Entry(path) for name, path in self._entries.items()}
        plugins = _plugins(self.group) if self.group else {}
        taken = own | {name: Entry("a word of the settings") for name in self._reserved}
        for name in taken.keys() & plugins.keys():
            raise _taken(self.kind, name, taken[name], plugins[name])
        return own | plugins


def installed_plugins() -> dict[str, str]:
    """Return distribution and version of every plug-in, by its group and name."""
    groups = sorted(group for group in _entry_points().groups if group.startswith(f"{OWN}."))
    return {f"{group} {name}": str(entry) for group in groups for name, entry in _plugins(group).items()}


@cache
def _plugins(group: str) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for point in _entry_points().select(group=group):
        assert point.dist is not None
        path = point.value.partition("[")[0].replace(" ", "")  # without extras
        entry = Entry(path, point.dist.name, point.dist.version)
        if not NAME.fullmatch(point.name):
            raise PluginError(
                f"{entry} registers {point.name!r} in {group}: a name has letters, digits, '.', '_' and '-', "
                "and starts with a letter or digit. Uninstall the package, or have it renamed."
            )
        if point.name in found:
            raise _taken(group, point.name, found[point.name], entry)
        found[point.name] = entry
    return dict(sorted(found.items()))


@cache
def _entry_points() -> Any:
    # Once a process: the metadata of every installed distribution is looked through, some 50 ms. The type
    # differs before Python 3.12; `select` does not.
    return importlib.metadata.entry_points()


def _taken(kind: str, name: str, first: Entry, second: Entry) -> PluginError:
    return PluginError(
        f"{kind} {name!r} is registered twice: {first.path} of {first}, and {second.path} of {second}. "
        f"Uninstall {second.package}, or have it renamed."
    )


def unknown_name(kind: str, name: str, known: list[str]) -> str:
    """The message for a name that is not known: what exists, and the nearest spelling."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {name!r}.{hint} Known: {', '.join(known) or 'none'}."
