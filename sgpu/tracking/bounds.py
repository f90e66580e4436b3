"""How long MLflow may wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
