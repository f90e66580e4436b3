"""`sgpu list`: what a study, a bundle or a command may name, and which installed package brings it."""

from __future__ import annotations

import ast
import importlib.util
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from sgpu import __version__
from sgpu.errors import SgpuError
from sgpu.registry import OWN, Registry

# What holds the names of each kind, imported when that kind is asked for.
KINDS = Registry(
    "kind",
    {
        "methods": "sgpu.methods.base:METHODS",
        "judges": "sgpu.judges.base:JUDGES",
        "engines": "sgpu.engines.base:ENGINES",
        "datasets": "sgpu.datasets.base:DATASETS",
        "log-formats": "sgpu.logs.formats:LOG_FORMATS",
        "encoders": "sgpu.encoders.cards:ENCODERS",
        "entailment": "sgpu.entailment.base:BACKENDS",
        "kernels": "sgpu.gp.kernels:KERNELS",
        "models": "sgpu.study.models:MODELS",
    },
)
# The attribute that says in words what a thing is, where it is light to import; else its docstring does.
_ABOUT = {"methods": "title", "datasets": "title", "encoders": "hub_id"}


@dataclass(frozen=True)
class Listed:
    """One thing that can be named; ``package`` is the distribution that brings it."""

    name: str
    about: str
    package: str = OWN
    version: str = __version__


def list_names(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=", ".join(KINDS))],
    json_: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List the names of a kind: what each of them is, and which plug-in package brings it."""
    rows = listed(kind)
    if json_:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    width = max(len(row.name) for row in rows)
    for row in rows:
        plugin = "" if row.package == OWN else f"  [{row.package} {row.version}]"
        print(f"{row.name:<{width}}  {row.about}{plugin}")


def listed(kind: str) -> list[Listed]:
    """Everything of a kind, sorted by name.

    Raises UsageError for a kind that does not exist, PluginError for a plug-in whose name does.
    """
    registered = KINDS.get(kind)
    if isinstance(registered, Registry):
        return [_listed(registered, name, _ABOUT.get(kind)) for name in registered.names()]
    # Models: our own cards are in a table, those of plug-ins in a registry beside it.
    from sgpu.study.models import MODEL_PLUGINS

    rows = [Listed(name, card.source) for name, card in registered.items()]
    rows += [_listed(MODEL_PLUGINS, name, "source") for name in MODEL_PLUGINS]
    return sorted(rows, key=lambda row: row.name)


def _listed(registry: Registry, name: str, attribute: str | None) -> Listed:
    entry = registry.entry(name)
    try:
        about = getattr(registry.get(name), attribute, None) if attribute else _said_in_source(entry.path)
    except SgpuError as error:  # the others are still to be listed
        about = str(error)
    return Listed(name, about or entry.path, entry.package, entry.version)


def _said_in_source(path: str) -> str | None:
    """The first line of a docstring, read without an import: engines bring libraries that take seconds."""
    module, _, attribute = path.partition(":")
    with suppress(ImportError, OSError, ValueError, SyntaxError):
        spec = importlib.util.find_spec(module)
        tree = ast.parse(Path(spec.origin).read_bytes()) if spec and spec.origin else ast.Module([], [])
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute:
                return (ast.get_docstring(node) or "").partition("\n")[0]
    return None
