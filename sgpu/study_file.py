"""Reading a YAML file into a typed section: overrides, and messages that name the key and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from sgpu.errors import UsageError

Section = TypeVar("Section", bound=BaseModel)


def read_tree(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The mapping in a study file with ``a.b=value`` overrides; UsageError where there is none."""
    try:
        tree = yaml.safe_load(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"study file {path} does not exist") from None
    except IsADirectoryError:
        raise UsageError(f"study file {path} is a folder; give the YAML file") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"study file {path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except yaml.YAMLError as error:
        raise UsageError(f"study file {path} is not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise UsageError(f"study file {path} must be a mapping of settings")
    override(tree, overrides)
    return tree


def override(tree: dict[str, Any], settings: Sequence[str]) -> None:
    """Set ``a.b=value`` for each of the settings; UsageError for one that leads nowhere."""
    for setting in settings:
        _override(tree, setting)


def validated(kind: type[Section], tree: dict[str, Any], origin: Path | str) -> Section:
    """The tree as a typed section; UsageError lists every key that is wrong and what is known there.

    ``origin``: the study file, or in words where the tree comes from.
    """
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        lines = [_line(kind, dict(problem)) for problem in error.errors()]
        named = f"study file {origin}" if isinstance(origin, Path) else origin
        raise UsageError(f"{named}:\n  " + "\n  ".join(lines)) from None


def _override(tree: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {override!r}: expected KEY=VALUE, for instance seed=1")
    node: Any = tree
    *parents, last = key.split(".")
    try:
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
        node[int(last) if isinstance(node, list) else last] = yaml.safe_load(value)
    except (IndexError, ValueError, TypeError, AttributeError, yaml.YAMLError):
        raise UsageError(f"--set {override!r}: {key!r} does not lead to a setting of this study") from None


def _line(kind: type[BaseModel], problem: dict[str, Any]) -> str:
    location = problem["loc"]
    where = ".".join(str(part) for part in location) or "study"
    if problem["type"] == "extra_forbidden":
        known = _keys_at(kind, location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"{where}: unknown key.{hint} Known: {', '.join(known)}."
    given = problem.get("input")
    shown = "" if isinstance(given, dict | list) or given is None else f" (got {given!r})"
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}{shown}"


def _keys_at(kind: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys of the section that a location leads to, through lists and optional sections."""
    section = kind
    for part in location:
        field = section.model_fields.get(str(part))
        inner = field.annotation if field else None
        for candidate in (inner, *get_args(inner)):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                section = candidate
    return sorted(section.model_fields)
