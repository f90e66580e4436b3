"""Ray's object store full of what others keep in it, with room to spill and with none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.outcome import outcome
from tests.chaos.runs import until_done
from tests.chaos.small_disk import small_disk
from tests.chaos.tally import Tally
from tests.chaos.world import World
from tests.cluster.nodes import OBJECT_STORE_BYTES, LocalCluster, with_folders

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
# Keeps 4 MB objects until there is room for no more, and goes on to ask for more.
HOG = """
import sys, threading, time
import numpy as np
import ray

ray.init(sys.argv[1], logging_level="ERROR", log_to_driver=False)
kept, most, told = [], int(sys.argv[2]), False
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
while not over.is_set():
    try:
        kept.append(ray.put(np.random.default_rng(len(kept)).bytes(4_000_000)))
        full = 4_000_000 * len(kept) > most
    except Exception:
        full = True
    if full and not told:
        print("full", flush=True)
        told = True
    if full:
        kept = kept[1:] if 4_000_000 * len(kept) > most else kept
        time.sleep(0.05)
"""


@contextmanager
def hogged(cluster: LocalCluster, most: int) -> Iterator[None]:
    """Another driver keeps the store full meanwhile."""
    command = [sys.executable, "-c", HOG, cluster.address, str(most)]
    hog = subprocess.Popen(
        command, env=cluster.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert hog.stdin is not None and hog.stdout is not None
    try:
        # Ray's own processes complain on the same stream.
        assert any(line == "full\n" for line in hog.stdout)
        threading.Thread(target=hog.stdout.read, daemon=True).start()
        yield
        assert hog.poll() is None
    finally:
        hog.kill()
        hog.wait()


@pytest.mark.parametrize("room", ["room to spill", "no room to spill"])
def test_a_run_beside_others_who_fill_rays_object_store_is_not_disturbed(
    world: World, tally: Tally, tmp_path: Path, room: str
) -> None:
    started, out, spill = time.monotonic(), tmp_path / "out", tmp_path / "spill"
    spilling = {"type": "filesystem", "params": {"directory_path": str(spill)}}
    variables = {
        "RAY_object_spilling_config": json.dumps(spilling),
        # Not to wait for minutes until a full store is said to be full.
        "RAY_oom_grace_period_s": "1",
    }
    with small_disk(spill, "1g" if room == "room to spill" else "8m"):
        cluster = LocalCluster(**with_folders(variables, ROOT))
        try:
            cluster.add(2)
            most = 4 * OBJECT_STORE_BYTES if room == "room to spill" else 10**12
            with hogged(cluster, most):
                used = os.statvfs(spill)
                assert used.f_bfree < used.f_blocks, "nothing was spilled"
                runs = until_done(
                    lambda: world.night.start(out, cluster.environment, workers=2, address=cluster.address)
                )
        finally:
            cluster.stop()
    found = outcome(out, world.wanted)
    tally.add(f"object store full, {room}", found, seconds=time.monotonic() - started, runs=runs)
    assert found.problems == ()
