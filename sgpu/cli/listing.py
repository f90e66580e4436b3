"""`sgpu list`: what a study, a bundle or a command may name, and which installed package brings it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
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
        "kernels": "sgpu.gp.kernels:KERNELS",
        "models": "sgpu.study.models:MODELS",
    },
)
# The attribute that says in words what a thing is, where it is light to import; else its path is shown.
_ABOUT = {"methods": "title", "datasets": "title", "encoders": "hub_id"}


@dataclass(frozen=True)
class Listed:
    """One thing that can be named; ``package`` is the distribution that brings it."""

    name: str
    about: str
    package: str = OWN
    version: str = __version__


def list_(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=", ".join(KINDS))],
    json_: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """What there is of a kind, by name; what a plug-in brings with its package."""
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
    return [Listed(name, card.source) for name, card in sorted(registered.items())]


def _listed(registry: Registry, name: str, attribute: str | None) -> Listed:
    entry = registry.entry(name)
    try:
        about = attribute and getattr(registry.get(name), attribute, None)
    except SgpuError as error:  # the others are still to be listed
        about = str(error)
    return Listed(name, about or entry.path, entry.package, entry.version)
