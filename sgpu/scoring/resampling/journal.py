"""What a server has answered, kept on disk, so that a run that was killed does not pay for it twice.

One small file for each request, named by the sha256 of everything that was asked; written whole or not at
all. A damaged file counts as none: the request is asked again. Failures are kept with the tokens that they
may have cost, so that a run that goes on counts them too; what was under way when it was killed is not known.
The files hold answers, so that only their owner may read the folder; who publishes the scores deletes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sgpu.storage.location import Location

VERSION = 1


class Journal:
    """The answers below ``folder``. ``run`` names the run: what failed for another one may be tried again."""

    def __init__(self, folder: Location, run: str) -> None:
        self._folder = folder
        self._run = run
        folder.make_private()

    def read(self, key: str) -> dict[str, Any] | None:
        """What was kept under the key; None where there is nothing that can be used."""
        try:
            content = json.loads(self._file(key).read_bytes())
            body, recorded = content["body"], content["sha256"]
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if not isinstance(body, dict) or _sha256(body) != recorded or body.get("key") != key:
            return None
        return body if "failed" not in body or body.get("run") == self._run else None

    def write(self, key: str, found: Mapping[str, Any]) -> None:
        """Keep what a server gave, before anything is made of it."""
        body = {**found, "key": key, "run": self._run, "version": VERSION}
        file = self._file(key)
        file.parent.make_folder()
        content = {"body": body, "sha256": _sha256(body)}
        file.write_bytes(json.dumps(content, sort_keys=True).encode("ascii"))

    def _file(self, key: str) -> Location:
        return self._folder / key[:2] / f"{key}.json"


def key_of(asked: Mapping[str, Any]) -> str:
    """sha256 of the canonical JSON of all that decides the answers."""
    return _sha256({"version": VERSION, **asked})


def _sha256(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
