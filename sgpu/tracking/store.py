"""An MLflow store: its database, its experiment, silence about both, and errors that name the store.

A store that is read may be down: waiting is bounded, and errors say what to do instead.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from sgpu.errors import DataError, StageError, UsageError
from sgpu.storage.whole import draft_of_file
from sgpu.tracking.base import SQLITE
from sgpu.visible import without_credentials

SERVERS = ("http://", "https://")
DATABASES = ("postgresql", "mysql", "mssql")


@dataclass(frozen=True)
class OpenStore:
    """A client and the experiment that it writes to."""

    client: MlflowClient
    experiment_id: str


def open_store(uri: str, experiment: str, *, artifact_root: str | None = None) -> OpenStore:
    """Create or open the store and the experiment; safe to call from several processes at once.

    See `sgpu.tracking.open_tracker` for the arguments and errors.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)
    if checked_address(uri).startswith(DATABASES) and artifact_root is None:
        raise UsageError("a tracking database needs `artifact_root`: a folder or bucket for its files")
    with store_errors(f"open the tracking store ({uri.partition(':')[0]})"), bounded_requests():
        if uri.startswith(SQLITE):
            database = Path(uri.removeprefix(SQLITE))
            _create_database(database)
            artifact_root = artifact_root or str(database.parent / "mlflow-artifacts")
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        return OpenStore(client, _experiment_id(client, experiment, artifact_root))


@contextmanager
def store_errors(doing: str) -> Iterator[None]:
    """Turn MLflow's errors into a StageError that says what was being done."""
    try:
        yield
    except MlflowException as error:
        raise StageError(
            f"could not {doing}: {without_credentials(str(error.message))} (MLflow: {error.error_code}). "
            "The tables of the study are safe; run it again, or with `tracking.mlflow: none`."
        ) from error


def checked_address(uri: str) -> str:
    """``uri`` if it can be the address of a store; UsageError otherwise."""
    if uri.startswith((SQLITE, *SERVERS, *DATABASES)):
        return uri
    raise UsageError(
        f"tracking store {without_credentials(uri)!r} is neither 'auto', 'none', sqlite:///FILE, an http(s) "
        f"address of an MLflow server, nor a database URI ({', '.join(DATABASES)})"
    )


def _create_database(database: Path) -> None:
    """Make an empty store, whole or not at all.

    MLflow's migrations take seconds, fail when two processes run them, and leave a file that cannot be
    opened when they are interrupted. So they run under a lock, on another name.
    """
    database.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{database}.lock"):
        if database.exists():
            return
        with draft_of_file(database) as draft:
            MlflowClient(tracking_uri=f"{SQLITE}{draft}")


def _experiment_id(client: MlflowClient, name: str, artifact_root: str | None) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return str(client.create_experiment(name, artifact_location=artifact_root))
        except MlflowException as error:
            # Somebody else made it in between; anything else is a real error.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            experiment = client.get_experiment_by_name(name)
    if experiment is None or experiment.lifecycle_stage != "active":
        raise UsageError(
            f"experiment {name!r} was deleted in this tracking store; restore it with "
            "`mlflow experiments restore`, or choose another name"
        )
    return str(experiment.experiment_id)


# MLflow waits two minutes for an answer and asks eight times over four minutes. It has no arguments for
# these, only variables, which it reads at each request; a server's wish for a longer pause could be any.
BOUNDS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
}

_environment = threading.RLock()


@contextmanager
def bounded_requests() -> Iterator[None]:
    """Requests of MLflow give up after three tries of ten seconds; what the user has set is kept.

    The process's environment is as before afterwards. Other threads of it that use MLflow meanwhile have the
    same bounds.
    """
    with _environment:
        ours = {name: value for name, value in BOUNDS.items() if name not in os.environ}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name in ours:
                os.environ.pop(name, None)


ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


@contextmanager
def reading(store: str, uri: str) -> Iterator[MlflowClient]:
    """A client of an existing store, to read ``uri``; DataError if it lacks that or does not answer."""
    try:
        with bounded_requests():
            yield MlflowClient(tracking_uri=store, registry_uri=store)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        if isinstance(error, MlflowException) and error.error_code in ABSENT:
            raise DataError(f"cannot get {uri} from {redact_address(store)}: {_first_line(error)}") from error
        raise DataError(
            f"cannot get {uri}: the MLflow store {redact_address(store)} does not answer "
            f"({type(error).__name__}: {_first_line(error)}). Try again later, or give a folder instead: the "
            "one that `sgpu fit` wrote needs no store."
        ) from error


def redact_address(store: str) -> str:
    """Return the store's address for a message, without user and password."""
    if store.startswith(SQLITE):
        return store
    parsed = urlparse(store)
    return without_credentials(f"{parsed.scheme}://{parsed.netloc}{parsed.path}")


def _first_line(error: Exception) -> str:
    text = getattr(error, "message", None) or str(error)
    text = without_credentials(str(text))
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return line if len(line) <= 300 else f"{line[:297]}..."
