"""Which Ray cluster a user names, and what to tell them where it does not answer."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from sgpu.errors import UsageError

CLIENT = "ray://"
HOST_PORT = re.compile(r"(?:ray://)?(?P<host>[^/:\s]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
CONNECT_TIMEOUT_S = 10


def named_cluster(address: str | None) -> str | None:
    """The cluster that the user names, by ``address`` or RAY_ADDRESS; None for a local Ray.

    Raises UsageError for what is no address.
    """
    source = "--address" if address else "RAY_ADDRESS"
    named = address or os.environ.get("RAY_ADDRESS") or "local"
    if named == "auto" or HOST_PORT.fullmatch(named):
        return named
    if named == "local":
        return None
    raise UsageError(
        f"{source} is {named!r}: give auto (on a node of the cluster), host:port (on a node; the head's, "
        "usually 6379) or ray://host:port (from anywhere; usually 10001)"
    )


def over_client(cluster: str | None) -> bool:
    """Whether the cluster is reached by Ray's client, from a machine that is none of its nodes."""
    return cluster is not None and cluster.startswith(CLIENT)


@contextmanager
def explained_connection(cluster: str | None) -> Iterator[None]:
    """Make a UsageError, with the remedy, of what Ray raises when it cannot connect to ``cluster``."""
    if cluster is None:
        yield
        return
    _check_port(cluster)
    import ray.exceptions

    try:
        yield
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        node = "" if over_client(cluster) else ", and is one of its nodes (from elsewhere: ray://host:port)"
        raise UsageError(
            f"no connection to the Ray cluster at {cluster}: {lines[-1].split('. ')[0].rstrip('.')}. "
            "Check that this machine has the token of the cluster in the file that RAY_AUTH_TOKEN_PATH names "
            f"(RAY_AUTH_MODE=disabled for a cluster without), has its versions of Python and Ray{node}, and "
            "that the port is the one of this kind of address."
        ) from error


def _check_port(cluster: str) -> None:
    """Ray itself would try for minutes where nobody listens."""
    if not (parts := HOST_PORT.fullmatch(cluster)):
        return
    try:
        socket.create_connection((parts["host"].strip("[]"), int(parts["port"])), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"nobody answers at {cluster}: {error}. Is the Ray cluster running, and is this the right port?"
        ) from error
