"""Check that all nodes of a Ray cluster see the folder of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from sgpu.errors import UsageError
from sgpu.runtime.ledger import on_node

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
    """Return id and host of every other node that is up; none where the cluster is out of reach."""
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
