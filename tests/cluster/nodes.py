"""A Ray cluster of several nodes on this machine, each a `ray start` that can be taken away at once."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

OBJECT_STORE_BYTES = 80 * 2**20
START_TIMEOUT_S = 90


@dataclass(frozen=True)
class Node:
    """A node's `ray start`, which has all its processes as children."""

    process: subprocess.Popen[bytes]
    node_id: str

    def take_away(self) -> None:
        """As a spot node goes: every process at once, nothing told to anybody."""
        kill_all(self.process)


class LocalCluster:
    """A head and workers under a token of their own, apart from any other Ray on this machine."""

    def __init__(self, **variables: str) -> None:
        # Not pytest's folder: the path of a socket may have 107 characters at most.
        self.folder = Path(tempfile.mkdtemp(prefix="sgpu-cluster-"))
        token = self.folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_TMPDIR": str(self.folder),  # where `auto` finds this cluster and no other
            "RAY_USAGE_STATS_ENABLED": "0",
            **variables,
        }
        self.nodes: list[Node] = []
        self.port = free_port()
        self.host = ""  # as Ray sees it, which takes an address that others reach for 127.0.0.1

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def add(self, num_cpus: int, num_gpus: int = 0) -> Node:
        """Start a node, the head first, and wait until the cluster knows it."""
        if self.nodes:
            role = ["--address", self.address]
        else:
            role = ["--head", "--port", str(self.port), "--include-dashboard", "false"]
            role += ["--ray-client-server-port", str(free_port())]  # any free one
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *role, "--block"]
        command += ["--num-cpus", str(num_cpus), "--num-gpus", str(num_gpus)]
        command += ["--object-store-memory", str(OBJECT_STORE_BYTES)]
        for bound in ("min", "max"):  # any free ports: nodes of one machine share them
            command += [f"--{bound}-worker-port", "0"]
        log = self.folder / f"node-{len(self.nodes)}.log"
        before = self._alive()
        with log.open("wb") as file:
            process = subprocess.Popen(command, env=self.environment, stdout=file, stderr=file)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ((new := self._alive() - before) and answers(self.host, self.port)):
            if process.poll() is not None or time.monotonic() > deadline:
                kill_all(process)
                raise RuntimeError(f"no node in {START_TIMEOUT_S} s: {log.read_text()}")
            time.sleep(0.5)
        node = Node(process, new.pop())
        self.nodes.append(node)
        return node

    def _alive(self) -> set[str]:
        """Ids of the nodes whose raylets run, as their command lines say."""
        found = set()
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            ids = [word.removeprefix("--node_id=") for word in words if word.startswith("--node_id=")]
            heads = [
                word.removeprefix("--gcs-address=") for word in words if word.startswith("--gcs-address=")
            ]
            if ids and heads and heads[0].endswith(f":{self.port}"):
                found.add(ids[0])
                self.host = heads[0].removesuffix(f":{self.port}")
        return found

    def stop(self) -> None:
        for node in reversed(self.nodes):
            node.take_away()
        shutil.rmtree(self.folder, ignore_errors=True)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """The process and all that it has started, unless it has ended."""
    if process.poll() is not None:
        return
    everything = [psutil.Process(process.pid)]
    everything += everything[0].children(recursive=True)
    for one in everything:
        one.kill()
    process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def with_folders(environment: Mapping[str, str], *folders: Path) -> dict[str, str]:
    """The environment with ``folders`` first on Python's path."""
    path = os.pathsep.join([*map(str, folders), *filter(None, [environment.get("PYTHONPATH")])])
    return {**environment, "PYTHONPATH": path}
