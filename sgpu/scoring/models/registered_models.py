"""Registered models by hand: which versions there are, and which one is the champion."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sgpu.errors import DataError, IntegrityError
from sgpu.gp.persistence import read_json
from sgpu.storage.bundle_files import MEASURES
from sgpu.tracking import open_versions
from sgpu.tracking.base import Version


def list_models(name: str, tracking_uri: str | None = None) -> list[Version]:
    """The versions of a model with their aliases, newest first; DataError if there are none to be had."""
    return open_versions(tracking_uri).all_of(name)


# Held-out rows below which a measure of a model says too little to let it decide.
LEAST_HELD_OUT = 30


def promote_model(
    name: str, version: int, tracking_uri: str | None = None, *, force: bool = False
) -> int | None:
    """Make a version the champion; return the version that it replaces, if there was one.

    Its files are read first, as scoring would: IntegrityError, and no alias is moved, where they are not what
    was registered. Raises DataError where there is no such version or the store is down, and, unless with
    ``force``, where its measures (`sgpu fit` stores them beside it) are below the floor. A version without
    measures has no floor.
    """
    versions = open_versions(tracking_uri)
    meant = versions.meant_by(f"models:/{name}/{version}")
    from sgpu.fitted.model import FittedModel  # PyTorch takes seconds: after a wrong name is told

    with TemporaryDirectory(prefix="sgpu-model-") as folder:
        versions.fetch(meant, Path(folder, "model"))
        FittedModel.load(Path(folder, "model"), allow_encoder_path=True)  # its encoder is not opened
        measures = Path(folder, "model", MEASURES)
        lacking = below_floor(read_json(measures, version=1)) if measures.is_file() and not force else []
    if lacking:
        raise DataError(
            f"version {version} of {name} is not made the champion: {'; '.join(lacking)}. Fit on more "
            "labelled rows of both kinds, or promote it with force"
        )
    return versions.make_champion(meant)


def below_floor(facts: Mapping[str, Any]) -> list[str]:
    """What the measures of a fit lack for a champion: rows, both classes, an AUROC surely above 0.5.

    IntegrityError for measures that `sgpu fit` has not written.
    """
    lacking = []
    try:
        rows = int(facts["rows"]["test"])
        auroc = next(row for row in facts["metrics"] if row["metric"] == "auroc")
        value, lo = (None if auroc[key] is None else float(auroc[key]) for key in ("value", "lo"))
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise IntegrityError(f"{MEASURES} of the model lacks held-out rows or AUROC; fit again") from error
    if rows < LEAST_HELD_OUT:
        lacking.append(f"{rows} held-out rows, below {LEAST_HELD_OUT}")
    if value is None:
        lacking.append("the held-out rows are all right or all wrong, so that it has no AUROC")
    elif lo is None or not lo > 0.5:
        bound = "not defined" if lo is None else f"{lo:.3f}"
        lacking.append(f"the lower bound of its AUROC is {bound}, not above 0.5")
    return lacking
