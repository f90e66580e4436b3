"""What the methods of a report are, as their own registry entries say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sgpu.errors import MissingDependencyError
from sgpu.methods.base import METHODS, Method


@dataclass(frozen=True)
class MethodNote:
    """A method in words; empty strings where it is not a registered method."""

    name: str
    title: str
    needs: str = ""
    sign: str = ""
    trained: str = ""
    reference: str = ""


def method_notes(names: Iterable[str]) -> dict[str, MethodNote]:
    """A note for every name, sorted; a name that the registry does not know stands for itself."""
    return {name: _note(name) for name in sorted(set(names))}


def _note(name: str) -> MethodNote:
    if name not in METHODS:
        return MethodNote(name, name)
    try:
        method = METHODS.get(name)
    except MissingDependencyError:  # a report must be readable where the method cannot be run
        return MethodNote(name, name)
    if isinstance(method, Method):
        sign = "uncertainty, negated" if method.sign == "uncertainty" else "confidence"
        trained = "no"
    else:
        sign, trained = method.gives, f"yes, on {method.learns}"
    needs = ", ".join(sorted(need.replace("_", " ") for need in method.needs))
    return MethodNote(name, method.title, needs, sign, trained, method.reference)
