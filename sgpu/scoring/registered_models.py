"""Registered models by hand: which versions there are, and which one is the champion."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sgpu.fitted import FittedModel
from sgpu.tracking import Version, open_versions


def list_models(name: str, tracking_uri: str | None = None) -> list[Version]:
    """The versions of a model with their aliases, newest first; DataError if there are none to be had."""
    return open_versions(tracking_uri).all_of(name)


def promote_model(name: str, version: int, tracking_uri: str | None = None) -> int | None:
    """Make a version the champion; return the version that it replaces, if there was one.

    Its files are read first, as scoring would: IntegrityError, and no alias is moved, where they are not what
    was registered. Raises DataError where there is no such version or the store is down.
    """
    versions = open_versions(tracking_uri)
    found = versions.meant_by(f"models:/{name}/{version}")
    with TemporaryDirectory(prefix="sgpu-model-") as folder:
        versions.fetch(found, Path(folder, "model"))
        FittedModel.load(Path(folder, "model"), allow_encoder_path=True)  # its encoder is not opened
    return versions.make_champion(found)
