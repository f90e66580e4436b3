"""Small JSON files of a run in work, which say what is done."""

from __future__ import annotations

import json
from typing import Any

from sgpu.hashing import canonical_json
from sgpu.storage.location import Location


def write_json(file: Location, content: Any) -> None:
    """Canonical JSON, whole or not at all."""
    file.parent.make_folder()
    file.write_bytes(canonical_json(content).encode())


def read_json(file: Location) -> Any:
    """What `write_json` wrote; None where there is no file."""
    try:
        return json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
