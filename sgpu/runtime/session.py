"""One Ray session for a run: an existing cluster that the user names, or a local one that fits a laptop."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path

from sgpu.errors import UsageError
from sgpu.provenance import available_cores, memory_bytes
from sgpu.runtime import local_ray

# On two logical CPUs a resumed Ray Data job deadlocks: its checkpoint filter takes one, our actors the
# rest, and the listing of files waits for ever. Logical CPUs cost nothing, so more are declared.
MIN_LOGICAL_CPUS = 8
# Of this machine's memory: images and hidden states wait in it for the actors.
OBJECT_STORE_SHARE, SHARED_MEMORY_SHARE, LEAST_OBJECT_STORE_BYTES = 0.1, 0.8, 512 * 2**20

_kept_open = False
_folders: list[Path] = []  # of local sessions that were not removed yet


@contextmanager
def one_ray_session(address: str | None = None) -> Iterator[None]:
    """Let all stages inside share one Ray.

    An existing cluster is connected to at once, so that a wrong address is told before any work; a local Ray
    is started by the first stage that asks, and by none if none does. Raises what `ray_session` raises.
    """
    global _kept_open
    _kept_open = True
    try:
        # Ray tells of lost nodes on standard output, where a command leaves its result and nothing else.
        with redirect_stdout(sys.stderr), ray_session(address) if named_cluster(address) else nullcontext():
            yield
    finally:
        _kept_open = False
        if "ray" in sys.modules:
            _shut_down()


@contextmanager
def ray_session(address: str | None = None) -> Iterator[None]:
    """Connect to ``address``, or start a local Ray and stop it at the end; nested use joins the outer one.

    Raises UsageError if the address is malformed or no cluster answers.
    """
    cluster = named_cluster(address)
    _environment(may_make_token=cluster is None)
    import ray

    if ray.is_initialized():
        yield
        return
    options: dict[str, object] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if cluster:
        options["address"] = cluster
    else:
        options |= {
            # Without this word Ray would join whatever cluster was last started on this machine.
            "address": "local",
            "num_cpus": max(MIN_LOGICAL_CPUS, available_cores()),
            "include_dashboard": False,
            "object_store_memory": _object_store_bytes(),
            "_temp_dir": _folder_of_session(),
            "_node_ip_address": local_ray.LOOPBACK,
        }
    try:
        loopback = nullcontext() if cluster else local_ray.on_loopback()
        with _quiet_start(), _own_signals(), explained_connection(cluster), loopback:
            ray.init(**options)
        yield
    finally:
        if not _kept_open:
            _shut_down()


def _object_store_bytes() -> int:
    """Return a share of this machine's memory, as far as shared memory has room: Ray would use the disk."""
    shared = Path("/dev/shm")
    room = shutil.disk_usage(shared).free * SHARED_MEMORY_SHARE if shared.is_dir() else 0
    return max(LEAST_OBJECT_STORE_BYTES, int(min(OBJECT_STORE_SHARE * memory_bytes(), room)))


def _folder_of_session() -> str:
    _folders.append(local_ray.private_folder())
    return str(_folders[-1] / "r")  # Ray opens its own folder to everyone, so the one above it is kept closed


def _shut_down() -> None:
    sys.modules["ray"].shutdown()
    while _folders:
        local_ray.remove(_folders.pop())


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Hold back the line that Ray's C++ core prints when it starts; show it if the start fails."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        terminal = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(terminal, held.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what SIGTERM means here: Ray makes an exit of it, which looks like a fault to try again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def _environment(may_make_token: bool = True) -> None:
    """Set what Ray reads from the environment; a value that is already there is the user's and stays."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray adapts the driver's accelerator variables on CPU machines with a warning otherwise.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    # Ray Data starts 32 processes to read the footers of Parquet files; a stage reads one or a few of them.
    os.environ.setdefault("RAY_DATA_PARQUET_FOOTER_NUM_ACTORS", "1")
    # Warnings about fractional CPUs and restartable actors that say nothing to a user of SGPU.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_worker_maximum_startup_concurrency", str(MIN_LOGICAL_CPUS * 2))
    # Ray starts a worker for each logical CPU. Actors of stages need others, with variables of their own.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    # Above the command's own niceness; Ray's default of 15 hands the machine to whatever else runs on it.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if "ray" not in sys.modules:  # afterwards it is too late: Ray reads the mode when it is imported
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    if may_make_token:
        local_ray.private_token()


HOST_PORT = re.compile(r"(?P<host>[^/:\s]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
CONNECT_TIMEOUT_S = 10


def named_cluster(address: str | None) -> str | None:
    """Return the cluster that the user names, by ``address`` or RAY_ADDRESS; None for a local Ray.

    Raises UsageError if it is not an address that stages can work over.
    """
    source = "--address" if address else "RAY_ADDRESS"
    named = address or os.environ.get("RAY_ADDRESS") or "local"
    if named == "auto" or HOST_PORT.fullmatch(named):
        return named
    if named == "local":
        return None
    if named.startswith("ray://"):
        raise UsageError(
            f"{source} is {named!r}, but stages cannot stream results through Ray's client: submit the "
            "command to the cluster (`ray job submit --address http://HEAD:8265 -- sgpu benchmark ...`, or "
            "the RayJob in infra/kuberay)"
        )
    raise UsageError(
        f"{source} is {named!r}: give auto (on a node of the cluster) or host:port (on a node; the head's, "
        "usually 6379)"
    )


@contextmanager
def explained_connection(cluster: str | None) -> Iterator[None]:
    """Convert what Ray raises when it cannot connect to ``cluster`` to a UsageError with the remedy."""
    if cluster is None:
        yield
        return
    _check_port(cluster)
    import ray.exceptions

    try:
        yield
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise UsageError(
            f"no connection to the Ray cluster at {cluster}: {lines[-1].split('. ')[0].rstrip('.')}. "
            "Check that this machine has the token of the cluster in the file that RAY_AUTH_TOKEN_PATH names "
            "(RAY_AUTH_MODE=disabled for a cluster without), has its versions of Python and Ray, and "
            "is one of its nodes."
        ) from error


def _check_port(cluster: str) -> None:
    """Raise UsageError if nobody listens at the port, where Ray itself would try for minutes."""
    if not (parts := HOST_PORT.fullmatch(cluster)):
        return
    try:
        socket.create_connection((parts["host"].strip("[]"), int(parts["port"])), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"no reply from {cluster}: {error}. Is the Ray cluster running, and is this the right port?"
        ) from error
