"""What a trained method must do: fit rows of a file, and leave a folder that says when it is whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sgpu.registry import Registry


class Fitted(Protocol):
    """A fit in memory."""

    def save(self, folder: Path | str) -> None:
        """Write the fit as data that cannot run code."""


@dataclass(frozen=True)
class Trainer:
    """Fits one method.

    ``fit`` takes a file of training rows, settings and a seed; it raises SgpuError where these rows cannot
    be fitted. ``description`` is the file that a saved fit writes last. ``recipe`` names the code and the
    format: another recipe is another fit of the same rows.
    """

    fit: Callable[[Path, Mapping[str, Any], int], Fitted]
    description: str
    recipe: tuple[str | int, ...]


TRAINERS = Registry(
    "trained method",
    {
        "sgpu": "sgpu.gp.rows:TRAINER",
        "saplma": "sgpu.stages.probe:SAPLMA",
        "sep": "sgpu.stages.probe:SEP",
    },
)
