"""What a study did, kept in MLflow: runs, metrics, lineage and registered fits.

This package is the only place that imports MLflow, and only once a store is opened: `base`
is pure, so that a study with ``tracking.mlflow: none`` never loads it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu.errors import DataError
from sgpu.tracking.base import SQLITE

if TYPE_CHECKING:
    from sgpu.tracking.fits import MlflowVersions
    from sgpu.tracking.runs import MlflowTracker


def open_tracker(
    uri: str = "auto", experiment: str = "sgpu", *, artifact_root: str | None = None
) -> MlflowTracker | None:
    """The tracker for a store, created together with its experiment if it does not exist.

    ``uri`` is ``none`` (track nothing, so that there is no tracker), ``auto`` (see `store_address`), a
    database URI or the address of an MLflow server. ``artifact_root`` says where files go: by default a
    folder beside an SQLite file, and whatever the server decides for a server. Raises UsageError for a URI
    that cannot be a store, StageError if the store does not answer.
    """
    if (address := store_address(uri)) == "none":
        return None
    _configure_mlflow()
    from sgpu.tracking.runs import MlflowTracker
    from sgpu.tracking.store import open_store

    return MlflowTracker(open_store(address, experiment, artifact_root=artifact_root))


def store_address(uri: str | None = None) -> str:
    """The store that every command uses: ``uri``, else MLFLOW_TRACKING_URI, else runs/mlflow.db.

    "auto" is as if no ``uri`` was given. Nothing is opened or created.
    """
    explicit = None if uri == "auto" else uri
    address = explicit or os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}runs/mlflow.db"
    if address.startswith(SQLITE):
        return f"{SQLITE}{Path(address.removeprefix(SQLITE)).resolve()}"
    return address


def open_versions(uri: str | None = None) -> MlflowVersions:
    """Return the registered models in a store, see `store_address`.

    Creates nothing, and asks a server only when a method is called. Raises DataError for a database file that
    does not exist, UsageError for an address that cannot be a store.
    """
    address = store_address(uri)
    if address.startswith(SQLITE) and not (file := Path(address.removeprefix(SQLITE))).is_file():
        # MLflow would make an empty store there, and look for the model in it.
        raise DataError(
            f"there is no MLflow store at {file}. Name the store (tracking_uri, or the variable "
            "MLFLOW_TRACKING_URI), or give the folder that `sgpu fit` wrote."
        )
    _configure_mlflow()
    from sgpu.tracking.fits import MlflowVersions
    from sgpu.tracking.store import checked_address

    return MlflowVersions(checked_address(address))


def _configure_mlflow() -> None:
    """No telemetry, no pickled models, no progress notes; a value that the user has set is kept.

    MLflow reads some of these when it is imported, so this comes first.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
