"""Waits for the memory of a GPU that an engine before has just let go of."""

from __future__ import annotations

import os
import time

from sgpu.provenance import query_gpus

FREE_SHARE = 0.95  # the driver itself and other processes may keep some
WAIT_S = 60.0
ASK_S = 1.0


def wait_for_memory(bound_s: float = WAIT_S) -> bool:
    """Wait until the GPUs that this process sees are free; return whether they are.

    An engine claims most of a GPU's memory when it starts, and that of a process which has ended is given
    back some seconds later. After ``bound_s`` the engine may try, and tells what it lacks.
    """
    deadline = time.monotonic() + bound_s
    while not (are_free := _are_free()) and time.monotonic() < deadline:
        time.sleep(ASK_S)
    return are_free


def _are_free() -> bool:
    """Return whether the visible GPUs are free; True if they cannot be asked."""
    gpus = query_gpus("memory.free", "memory.total", only=os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    try:
        mib = [[float(memory.removesuffix(" MiB")) for memory in gpu] for gpu in gpus]
    except ValueError:  # "[N/A]"
        return True
    return all(free >= FREE_SHARE * total for free, total in mib)
