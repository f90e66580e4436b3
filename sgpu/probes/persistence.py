"""A fitted probe as two files: ``NAME.safetensors`` with the weights, ``NAME.json`` with everything else.

No format that can run code is written or read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from sgpu.errors import IntegrityError
from sgpu.gp.persistence import read_checked, write_json
from sgpu.storage.whole import replace_file

FORMAT = 1
Weights = Mapping[str, NDArray[Any]]


def write_probe(folder: Path | str, name: str, description: Mapping[str, Any], weights: Weights) -> None:
    """Write both files, the description last, so that a folder that holds it is complete."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    payload = safetensors.numpy.save({key: np.ascontiguousarray(value) for key, value in weights.items()})
    replace_file(target / f"{name}.safetensors", payload)
    checksum = hashlib.sha256(payload).hexdigest()
    write_json(target / f"{name}.json", {"format": FORMAT, **description, "sha256": checksum})


def read_probe(folder: Path | str, name: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The description and the weights of a folder.

    Raises IntegrityError for a file that is missing, broken, changed or of another format version.
    """
    source = Path(folder)
    path = source / f"{name}.safetensors"
    description, payload = read_checked(path, source / f"{name}.json", FORMAT)
    try:
        return description, safetensors.numpy.load(payload)
    except SafetensorError as error:
        raise IntegrityError(f"{path} is not a safetensors file: {error}") from error


def tuples(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a report as they were: JSON knows lists only."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
