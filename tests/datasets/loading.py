"""The files of a test are fewer than a card expects, so that they are loaded without counting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sgpu.datasets.base import LoadRequest, Source


def loader(load: Callable[[LoadRequest], Source]) -> Callable[..., Source]:
    """Return ``load`` as a function of a folder and options."""

    def load_folder(folder: Path, **options: Any) -> Source:
        return load(LoadRequest(folder, options=options, check_rows=False))

    return load_folder
