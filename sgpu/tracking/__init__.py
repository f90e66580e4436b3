"""What a study did, kept in MLflow: runs, metrics, lineage and registered fits.

This package is the only place that imports MLflow, and only once a store is opened: `base` and `null`
are pure, so that a study with ``tracking.mlflow: none`` never loads it.
"""

from __future__ import annotations

import os
from pathlib import Path

from sgpu.tracking.base import RegisteredFit, StudyRun, TableVersion, Tracker
from sgpu.tracking.null import NullTracker

__all__ = ["RegisteredFit", "StudyRun", "TableVersion", "Tracker", "open_tracker"]


def open_tracker(
    uri: str = "auto",
    experiment: str = "sgpu",
    *,
    root: Path = Path("runs"),
    artifact_root: str | None = None,
) -> Tracker:
    """The tracker for a store, created together with its experiment if it does not exist.

    ``uri`` is ``none`` (track nothing), ``auto`` (``sqlite:///<root>/mlflow.db``), a database URI or the
    address of an MLflow server. ``artifact_root`` says where files go: by default a folder beside an SQLite
    file, and whatever the server decides for a server. Raises UsageError for a URI that cannot be a store,
    StageError if the store does not answer.
    """
    if uri == "none":
        return NullTracker()
    _configure_mlflow()
    from sgpu.tracking.runs import MlflowTracker
    from sgpu.tracking.store import open_store

    return MlflowTracker(open_store(uri, experiment, root=root, artifact_root=artifact_root))


def _configure_mlflow() -> None:
    """No telemetry, no pickled models, no progress notes; a value that the user has set is kept.

    MLflow reads some of these when it is imported, so this comes first.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
