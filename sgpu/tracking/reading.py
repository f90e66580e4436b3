"""Reading an MLflow store that may be down: bounded waiting, errors that name the store and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlparse

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from sgpu.addresses import without_credentials
from sgpu.errors import DataError
from sgpu.tracking.bounds import bounded_requests
from sgpu.tracking.store import SQLITE

__all__ = ["bounded_requests", "reading", "shown"]

ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


@contextmanager
def reading(store: str, uri: str) -> Iterator[MlflowClient]:
    """A client of an existing store, to read ``uri``; DataError if it is not there or does not answer."""
    if store.startswith(SQLITE) and not (file := Path(store.removeprefix(SQLITE))).is_file():
        # MLflow would make an empty store there, and look for the model in it.
        raise DataError(
            f"cannot get {uri}: there is no MLflow store at {file}. Name the store with --tracking or "
            "MLFLOW_TRACKING_URI, or give the folder that `sgpu fit` wrote."
        )
    try:
        with bounded_requests():
            yield MlflowClient(tracking_uri=store, registry_uri=store)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        if isinstance(error, MlflowException) and error.error_code in ABSENT:
            raise DataError(f"cannot get {uri} from {shown(store)}: {_first_line(error)}") from error
        raise DataError(
            f"cannot get {uri}: the MLflow store {shown(store)} does not answer "
            f"({type(error).__name__}: {_first_line(error)}). Try again later, or give a folder instead: the "
            "one that `sgpu fit` wrote needs no store."
        ) from error


def shown(store: str) -> str:
    """The store's address for a message, without user and password."""
    if store.startswith(SQLITE):
        return store
    parsed = urlparse(store)
    return without_credentials(f"{parsed.scheme}://{parsed.netloc}{parsed.path}")


def _first_line(error: Exception) -> str:
    text = getattr(error, "message", None) or str(error)
    text = without_credentials(str(text))
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return line if len(line) <= 300 else f"{line[:297]}..."
