"""Working on a Ray cluster: a command that drives its work on the head, and a folder that all nodes see.

Stages stream their results, which Ray's client cannot. So from outside of a cluster the whole command runs on
the head, and its lines appear here; what goes over the client is text alone. Ray's jobs would need the server
of its dashboard, which a plain Ray has not, and mix a command's result with its messages.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sgpu.errors import InterruptedRunError, QuarantineError, SgpuError, StageError, UsageError
from sgpu.runtime.ledger import on_node
from sgpu.runtime.session import client_session

COMMAND = ("-c", "from sgpu.cli import main; main()")
ERROR = "error: "  # how the command line begins its last line when it fails
POLL_S = 1.0
RAISED = {kind.exit_code: kind for kind in (UsageError, QuarantineError, InterruptedRunError)}
# What Ray tells its own worker; a process that the worker starts is a driver like any other.
OF_THE_WORKER = ("RAY_RAYLET_PID", "RAY_JOB_ID", "RAY_CLIENT_MODE", "RAY_ADDRESS")


class HeadProcess:
    """The command `sgpu` on a node of the cluster, as an actor that hands its lines on."""

    def __init__(self, words: Sequence[str], folder: str, columns: str) -> None:
        import ray

        context = ray.get_runtime_context()
        arguments = [*words, "--address", context.gcs_address]
        environment = {name: value for name, value in os.environ.items() if name not in OF_THE_WORKER}
        self._lines: queue.Queue[str] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, *COMMAND, *arguments],
            cwd=folder, env={**environment, "COLUMNS": columns}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stderr or ():
            self._lines.put(line)

    def follow(self) -> tuple[list[str], int | None, str]:
        """New lines of its standard error; at the end also its exit code and standard output."""
        self._reader.join(POLL_S)
        lines = [self._lines.get_nowait() for _ in range(self._lines.qsize())]
        if self._reader.is_alive() or not self._lines.empty():
            return lines, None, ""
        stdout, _ = self._process.communicate()
        return lines, self._process.returncode, stdout.strip()

    def interrupt(self) -> None:
        """As Ctrl-C would, where the command was typed: SIGINT is ignored by what Ray's workers start."""
        self._process.send_signal(signal.SIGTERM)


def run_on_head(words: Sequence[str], address: str) -> str:
    """Run `sgpu` with ``words`` on the head of the cluster at ``address``; returns what it prints.

    Folders are those of the head: it must see this one. Raises the error that the command ends with,
    UsageError where the head does not see this folder, StageError if the connection is lost.
    """
    with client_session(address):
        import ray

        # The server of the client runs on the head; a driver elsewhere would die with a node that goes.
        head = on_node()
        folder = Path.cwd()
        if not ray.get(ray.remote(_is_there).options(**head).remote(str(folder))):
            raise UsageError(
                f"the head of the cluster at {address} has no folder {folder}: start the command in a folder "
                "that all nodes share, with study, data and --out in it or in object storage"
            )
        kind = ray.remote(HeadProcess).options(**head)
        process = kind.remote(list(words), str(folder), os.environ.get("COLUMNS", "120"))
        try:
            return _followed(process)
        except (ConnectionError, ray.exceptions.RayError) as error:
            raise StageError(
                f"the connection to the cluster at {address} was lost ({type(error).__name__}), and with it "
                "the run. What is finished is kept: the same command goes on from there."
            ) from error


def _followed(process: Any) -> str:
    import ray

    message = ""
    otherwise: type[SgpuError] = StageError
    while True:
        try:
            lines, code, printed = ray.get(process.follow.remote())
        except KeyboardInterrupt:
            ray.get(process.interrupt.remote())
            otherwise = InterruptedRunError
            continue
        for line in lines:
            if line.startswith(ERROR):
                message = line.removeprefix(ERROR).strip()
            else:
                sys.stderr.write(line)
        if code == 0:
            return str(printed)
        if code is not None:
            kind: type[SgpuError] = RAISED.get(code, otherwise)
            raise kind(message or f"the run ended with exit code {code} and no message; its lines are above")


# A node that answers nothing for so long is being lost, which the stages know how to bear.
ANSWER_TIMEOUT_S = 60


def check_shared(folder: Path, sharing: set[str], look: Callable[[str], bool] | None = None) -> None:
    """Raise UsageError if a node that is up now does not see ``folder`` of this machine.

    ``sharing`` are nodes that need not be asked again; those that see it are added. A Ray session is open.
    ``look`` is how a node looks for a file, for tests.
    """
    import ray

    hosts = {node: host for node, host in _others().items() if node not in sharing}
    if not hosts:
        return
    remote = ray.remote(look or _is_there)
    # A new name each time: a network disk may remember for a while that a file was not there.
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".seen-") as marker:
        node_of = {remote.options(**on_node(node)).remote(marker.name): node for node in hosts}
        answered, _ = ray.wait(list(node_of), num_returns=len(node_of), timeout=ANSWER_TIMEOUT_S)
        for answer in answered:
            try:
                sees = ray.get(answer)
            except ray.exceptions.RayError:
                continue  # lost while it was asked
            if not sees:
                raise UsageError(
                    f"node {hosts[node_of[answer]]} of the cluster does not see {folder} of this machine: "
                    "stages write where they run and read what others wrote. Give --out a folder that all "
                    "nodes share, or object storage (s3://bucket/prefix)."
                )
            sharing.add(node_of[answer])


def _others() -> dict[str, str]:
    """Id and host of every node that is up, without this one; none where the cluster is out of reach."""
    import ray

    try:
        own_node, nodes = ray.get_runtime_context().get_node_id(), ray.nodes()
    except ray.exceptions.RayError:
        return {}
    return {
        node["NodeID"]: node["NodeManagerHostname"]
        for node in nodes
        if node["Alive"] and node["NodeID"] != own_node
    }


def _is_there(path: str) -> bool:
    return Path(path).exists()
