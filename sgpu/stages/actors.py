"""What the actors of a stage ask Ray for, on a CPU machine, on its GPUs and on a cluster."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

from sgpu.engines.base import has_own_models
from sgpu.models.cards import ModelCard
from sgpu.provenance import available_cores, memory_bytes
from sgpu.runtime.session import named_cluster
from sgpu.runtime.stage import Resources
from sgpu.stages.run import Run
from sgpu.storage.store import Partition
from sgpu.study.benchmark import Cell
from sgpu.study.specs import ActorStage

# On the CPU every step of an engine takes some 60 MB from the system and gives them back. That costs a fifth
# less time in huge pages, where the kernel grants them, and less again where freed memory is kept for a
# minute, which the allocator that comes with Ray can do.
JEMALLOC = "dirty_decay_ms:60000,muzzy_decay_ms:60000,thp:always"

# Of one actor on a cluster, where the cores of its node are not known beforehand. Nodes of cluster.yaml have
# 22 or more for each GPU, which up to four actors share; without GPUs Ray counts half a core for an actor.
CLUSTER_THREADS_GPU, CLUSTER_THREADS_CPU = 4, 1

# A model whose actors share a CPU machine: its weights, what an actor takes beside them (key-value cache,
# libraries, activations), the share of the memory for all actors, and the rows that are worth a start.
SMALL_MODEL_GIB, ACTOR_GIB, ACTORS_SHARE, ACTOR_ROWS = 1.0, 3.0, 0.5, 64


def engine_actors(
    run: Run,
    stage: ActorStage,
    card: ModelCard,
    engine: str,
    rows: int,
    block_rows: int | None = None,
    gpus: float | None = None,
) -> Resources:
    """Return what actors with an engine ask for: whole GPUs, or all cores of a CPU machine together.

    ``rows`` are those of the whole study. vLLM gets a second block before it is done with the first: it
    batches the requests of both.
    """
    given, calls = run.study.resources.actors.get(stage), 2 if engine == "vllm" else 1
    if engine == "openai":  # which waits for a server
        alone = run.study.resources.executor == "ray"
        return Resources(given or 1, 0.5, 0.0, block_rows or 16, threads=1, calls=2, own_process=alone)
    if run.on_gpu():
        width = card.tensor_parallel_size if gpus is None else gpus
        return Resources(given, 1.0, width, block_rows or 512, _threads(run, 1), calls=calls)
    actors = given or _count_on_cpu(run, card.memory_gib, engine, rows)
    # On this machine all engines together take half a CPU of Ray's: its own tasks need a whole one.
    cpus = 0.5 if named_cluster(run.address) else 0.5 / actors
    threads = _threads(run, actors)
    return Resources(actors, cpus, 0.0, block_rows or 16, threads, _find_allocator(), calls=calls)


def light_actors(run: Run, stage: ActorStage) -> Resources:
    """Return what actors without an engine ask for: larger blocks, and a part of a GPU or one thread."""
    spec, on_gpu = run.study.resources, run.on_gpu()
    given = spec.actors.get(stage)
    if not (actors := given) and not on_gpu:
        actors = 1 if named_cluster(run.address) else available_cores()
    own = spec.executor == "ray" or given is not None
    return Resources(
        actors, 0.5, 0.25 if on_gpu else 0.0, spec.block_rows, _threads(run, actors or 1), own_process=own
    )


def rule_actors(run: Run, stage: ActorStage) -> Resources:
    """Return what actors of rules alone ask for: as light ones, but no GPU to compare texts."""
    light = light_actors(run, stage)
    return replace(light, num_gpus=0.0, actors=light.actors or 1)


def count_questions(run: Run, cell: Cell) -> int:
    """Return the questions that the cell's model is asked in the whole study: its engines do them all."""
    datasets = {other.dataset for other in run.study.cells() if other.model == cell.model}
    prepared = (run.store.published("questions", Partition.of(dataset=name)) for name in datasets)
    return sum(published.rows for published in prepared if published)


def _count_on_cpu(run: Run, gib: float, engine: str, rows: int) -> int:
    """Return how many engines of a model work side by side on ``rows`` rows of a CPU machine.

    One per core for a small model, as long as memory allows: two threads over one small engine wait for each
    other at every operation. See `bench/engine_choice.py`.
    """
    if not 0 < gib <= SMALL_MODEL_GIB or has_own_models(engine) or named_cluster(run.address):
        return 1
    # Weights may be held as float32, twice the size that the card gives.
    fitting = memory_bytes() / 2**30 * ACTORS_SHARE // (2 * gib + ACTOR_GIB)
    return max(1, min(available_cores(), int(fitting), rows // ACTOR_ROWS))


def _threads(run: Run, actors: int) -> int:
    """Of one actor: its share of this machine's cores, or a fixed number on a cluster."""
    if named_cluster(run.address):
        return CLUSTER_THREADS_GPU if run.on_gpu() else CLUSTER_THREADS_CPU
    return max(1, available_cores() // actors)


def _find_allocator() -> dict[str, str]:
    """Return the environment of a process with much memory: Ray's jemalloc, or glibc's huge pages."""
    ray = importlib.util.find_spec("ray")
    library = Path(ray.origin or "").parent / "core" / "libjemalloc.so" if ray else None
    if library is not None and library.is_file():
        return {"LD_PRELOAD": str(library), "MALLOC_CONF": JEMALLOC}
    return {"THP_MEM_ALLOC_ENABLE": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
