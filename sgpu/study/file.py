"""Reading a YAML file into a typed section: overrides, and messages that name the key and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, Discriminator, Tag, ValidationError

from sgpu.errors import UsageError
from sgpu.visible import without_credentials

Section = TypeVar("Section", bound=BaseModel)
# ValueError: what looks like a date and is none. RecursionError: thousands of brackets within each other.
NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)


def read_tree(path: Path, overrides: Sequence[str] = (), what: str = "study file") -> dict[str, Any]:
    """The mapping in a file with ``a.b=value`` overrides, of an empty file an empty one; else UsageError.

    ``what``: the kind of file, for the messages.
    """
    named = f"{what} {path}"
    try:
        tree = yaml.safe_load(path.read_bytes().decode("utf-8"))
    except (OSError, *NOT_YAML) as error:
        raise UsageError(f"{named} {_unreadable(error)}") from None
    if not isinstance(tree, dict | None):
        raise UsageError(f"{named}: the file must be a mapping of settings")
    tree = tree or {}
    override(tree, overrides)
    return tree


def _unreadable(error: Exception) -> str:
    match error:
        case FileNotFoundError():
            return "does not exist and cannot be read"
        case IsADirectoryError():
            return "is a folder and cannot be read; give the YAML file"
        case UnicodeDecodeError():
            return f"is not UTF-8 (byte {error.start}) and cannot be read; save it as UTF-8"
        case OSError():
            return f"cannot be read: {error}"
    return f"is not YAML and cannot be read: {without_credentials(str(error))}"


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
        named = f"study file {origin}" if isinstance(origin, Path) else origin
        lines = "\n  ".join(_lines(kind, tree, error))
        raise UsageError(f"{named}:\n  {without_credentials(lines)}") from None


def _override(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    shown = without_credentials(repr(override))
    if not equals or not key:
        raise UsageError(f"--set {shown}: expected KEY=VALUE, for instance sampling.n=10")
    try:
        value = yaml.safe_load(text)
    except NOT_YAML as error:
        problem = without_credentials(str(getattr(error, "problem", None) or error))
        raise UsageError(f"--set {shown}: the value is not YAML: {problem}") from None
    node: Any = tree
    *parents, last = key.split(".")
    try:
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
        node[int(last) if isinstance(node, list) else last] = value
    except (IndexError, ValueError, TypeError, AttributeError):
        raise UsageError(f"--set {shown}: {key!r} does not lead to a setting") from None


def _lines(kind: type[BaseModel], tree: dict[str, Any], error: ValidationError) -> list[str]:
    """One line for each key at fault.

    A value that a validator has copied from one section into others fails in each of them; what counts is the
    place where the file has it.
    """
    problems = [(_located(kind, dict(problem)), dict(problem)) for problem in error.errors()]
    faults = [(keys[-1:], problem["type"], problem.get("input")) for (keys, _), problem in problems]
    written = [fault for fault, ((keys, _), _) in zip(faults, problems, strict=True) if _is_in(tree, keys)]
    messages: dict[str, list[str]] = {}
    for fault, ((keys, section), problem) in zip(faults, problems, strict=True):
        if _is_in(tree, keys) or fault not in written:
            messages.setdefault(".".join(map(str, keys)) or "study", []).append(_message(section, problem))
    # A value that may be of several types has one message for each of them.
    return [f"{where}: {'; or: '.join(dict.fromkeys(lines))}" for where, lines in messages.items()]


def _message(section: type[BaseModel], problem: dict[str, Any]) -> str:
    if problem["type"] == "extra_forbidden":
        key, names = str(problem["loc"][-1]), sorted(section.model_fields)
        near = difflib.get_close_matches(key, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"unknown key.{hint} Known: {', '.join(names)}."
    value = problem.get("input")
    shown = "" if isinstance(value, dict | list) or value is None else f" (got {value!r})"
    if problem["type"].startswith("date_"):
        return f"expected a date written as YYYY-MM-DD{shown}"
    return f"{problem['msg'].removeprefix('Value error, ')}{shown}"


def _is_in(tree: Any, keys: Sequence[int | str]) -> bool:
    for key in keys:
        try:
            tree = tree[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _located(kind: type[BaseModel], problem: dict[str, Any]) -> tuple[list[int | str], type[BaseModel]]:
    """The keys that lead to a problem, as a file or ``--set`` has them, and the section that holds the last.

    Its location also holds what no file has: the names by which pydantic tells the branches of a union apart.
    """
    location = list(problem["loc"])
    unknown = [location.pop()] if problem["type"] == "extra_forbidden" else []
    keys: list[int | str] = []
    section, branches = kind, {"": kind}
    for part in location:
        holding = [branch for branch in branches.values() if part in getattr(branch, "model_fields", {})]
        if isinstance(part, int):
            keys.append(part)
        elif part in branches:
            branches = {"": branches[part]}
        elif holding:
            keys.append(part)
            branches = _branches(holding[0].model_fields[part])
        elif values := [get_args(branch)[1] for branch in branches.values() if get_origin(branch) is dict]:
            keys.append(part)
            branches = _branches(values[0])
        section = next((branch for branch in branches.values() if hasattr(branch, "model_fields")), section)
    return keys + unknown, section


def _branches(field: Any) -> dict[str, Any]:
    """The types that a field, or each item of it, may have, by the tag of a union's branch or by name."""
    annotation = getattr(field, "annotation", field)
    tags = [part.tag for part in get_args(annotation) if isinstance(part, Tag)]
    if tags:
        return {tags[0]: get_args(annotation)[0]}
    inner = [part for part in get_args(annotation) if not isinstance(part, Discriminator)]
    if not inner or get_origin(annotation) in {dict, Literal}:
        return {getattr(annotation, "__name__", str(annotation)): annotation}
    return {tag: branch for part in inner for tag, branch in _branches(part).items()}
