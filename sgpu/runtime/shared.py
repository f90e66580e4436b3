"""Whether the nodes of a cluster see one folder: what a stage writes on one of them is read on another."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from sgpu.errors import UsageError

# A node that answers nothing for so long is being lost, which the stages know how to bear.
ANSWER_TIMEOUT_S = 60


def check_shared(folder: Path, seen: set[str], look: Callable[[str], bool] | None = None) -> None:
    """Raise UsageError if a node that is up now does not see ``folder`` of this machine.

    ``seen`` are nodes that need not be asked again; those that see it are added. A Ray session is open.
    ``look`` is how a node looks for a file, for tests.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    hosts = {node: host for node, host in _others().items() if node not in seen}
    if not hosts:
        return
    remote = ray.remote(look or _is_file)
    # A new name each time: a network disk may remember for a while that a file was not there.
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".seen-") as marker:
        asked = {}
        for node in hosts:
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            asked[remote.options(num_cpus=0, scheduling_strategy=there).remote(marker.name)] = node
        answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_TIMEOUT_S)
        for answer in answered:
            try:
                sees = ray.get(answer)
            except ray.exceptions.RayError:
                continue  # lost while it was asked
            if not sees:
                raise UsageError(
                    f"node {hosts[asked[answer]]} of the cluster does not see {folder} of this machine: "
                    "stages write where they run and read what others wrote. Give --out a folder that all "
                    "nodes share, or object storage (s3://bucket/prefix)."
                )
            seen.add(asked[answer])


def _others() -> dict[str, str]:
    """Id and host of every node that is up, without this one; none where the cluster is out of reach."""
    import ray

    try:
        here, nodes = ray.get_runtime_context().get_node_id(), ray.nodes()
    except ray.exceptions.RayError:
        return {}
    return {
        node["NodeID"]: node["NodeManagerHostname"]
        for node in nodes
        if node["Alive"] and node["NodeID"] != here
    }


def _is_file(path: str) -> bool:
    return Path(path).is_file()
