"""Passes of a pooled fit over all its rows, shared or not: `python -m bench pooled_passes`, some six minutes.

After a pass the processes that share it add up what each has found in its rows: the gradient of q(u), a
vector of 256 and a matrix of 256 x 256. That much is done here with torch.distributed and gloo, without Ray;
each way runs in processes of its own, and what they take to start is told beside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.constructed import constructed_spectra

ROWS, PASSES, INDUCING = (100_000, 300_000, 1_000_000), 6, 256
DRAWN = 4000
# By name: how many processes share the rows, and the threads of each.
WAYS = {
    "one process, one thread": (1, 1),
    "one process, two threads": (1, 2),
    "two processes": (2, 1),
}


def write_pool(path: Path, rows: int) -> None:
    """Rows for a pass, whose time does not depend on their values: constructed ones, repeated with noise."""
    data, rng = constructed_spectra(DRAWN, seed=0), np.random.default_rng(0)
    place = rng.integers(0, DRAWN, rows)
    spectra = data.spectra[place] + rng.normal(0, 1e-3, (rows, data.spectra.shape[1]))
    np.savez(path, spectra=np.sort(np.abs(spectra), axis=1)[:, ::-1], label=data.label[place])


def share(path: str, meeting: str, rank: str, world: str, threads: str) -> dict[str, Any]:
    """One process's part: its rows of the file, and after each pass the sum over all processes."""
    import torch
    import torch.distributed as group
    from threadpoolctl import threadpool_limits

    from sgpu.gp.fitting import inducing_points
    from sgpu.gp.inference import Bound, Effort, SparseGP

    torch.set_num_threads(int(threads))
    group.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=int(world))
    with np.load(path) as file:
        own = slice(int(rank), None, int(world))
        x, y = torch.as_tensor(file["spectra"][own].copy()), torch.as_tensor(file["label"][own].copy())
        total = len(file["label"])
    points = inducing_points(constructed_spectra(DRAWN, seed=0).spectra, INDUCING, 0)
    model = SparseGP("matern15", torch.as_tensor(points))
    model.set_log_hyperparameters(0.0, 0.0)
    bound = Bound(model, x, y, Effort())
    seconds = []
    with threadpool_limits(int(threads)):
        for _ in range(1 + PASSES):  # the first one warms up
            group.barrier()
            began = time.perf_counter()
            bound.evaluate(bound.natural)
            # A bound is per row of its own.
            found = torch.cat([p.grad.reshape(-1) for p in bound.natural]) * (len(y) / total)  # type: ignore[union-attr]
            group.all_reduce(found)
            seconds.append(time.perf_counter() - began)
    group.destroy_process_group()
    return {"seconds": seconds[1:], "gradient": float(found.norm()), "numbers": len(found)}


def timed(rows: Path, processes: int, threads: int) -> dict[str, Any]:
    """What the first of the processes says, and ``start_s``: their time beside the passes."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    environment = {**os.environ, **limits, "GLOO_SOCKET_IFNAME": "lo"}
    began = time.perf_counter()
    with TemporaryDirectory(prefix="sgpu-meeting-") as folder:
        words = [sys.executable, "-m", "bench.pooled_passes", str(rows), str(Path(folder, "meeting"))]
        started = [
            subprocess.Popen(
                [*words, str(rank), str(processes), str(threads)],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(processes)
        ]
        said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError("a process that shared the passes failed; its error stands above")
    result: dict[str, Any] = json.loads(said[0].splitlines()[-1])
    return {**result, "start_s": time.perf_counter() - began - sum(result["seconds"])}


def run(rows: Sequence[int] = ROWS) -> list[dict[str, Any]]:
    """Seconds for six passes over each number of rows, in each way, beside one process with one thread."""
    made = []
    with TemporaryDirectory(prefix="sgpu-passes-") as folder:
        for count in rows:
            pool = Path(folder, f"{count}.npz")
            write_pool(pool, count)
            found = {name: timed(pool, *way) for name, way in WAYS.items()}
            pool.unlink()
            gradients = [result["gradient"] for result in found.values()]
            assert np.allclose(gradients, gradients[0], rtol=1e-6), f"the ways disagree: {gradients}"
            first = median(found["one process, one thread"]["seconds"])
            made += [_row(count, name, result, first) for name, result in found.items()]
    return made


def _row(count: int, name: str, result: dict[str, Any], first: float) -> dict[str, Any]:
    seconds = result["seconds"]
    one = median(seconds)
    return {
        "name": f"{PASSES} passes, M={count}, {name}",
        "ours": PASSES * one,
        "baseline": PASSES * first,
        "ratio": first / one,
        "bound": None,
        "unit": "s",
        "note": f"median of {PASSES}, from {min(seconds):.2f} to {max(seconds):.2f} s a pass; "
        f"{result['start_s']:.0f} s to start and read; {result['numbers']} numbers are added up",
    }


if __name__ == "__main__":
    print(json.dumps(share(*sys.argv[1:])))
