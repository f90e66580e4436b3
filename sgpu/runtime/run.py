"""What every stage of one run shares: the study, its folder, its tables and what was done so far."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sgpu.errors import QuarantineError, SgpuError, StageError, UsageError
from sgpu.models.weights import cache_dir
from sgpu.provenance import available_cores
from sgpu.runtime.address import named_cluster
from sgpu.runtime.progress import Progress
from sgpu.runtime.runner import run_stage
from sgpu.runtime.session import ray_session
from sgpu.runtime.shared import check_shared
from sgpu.runtime.stage import Outcome, Resources, Stage
from sgpu.storage.delta_log import open_table
from sgpu.storage.location import Location
from sgpu.storage.store import Store, fingerprint
from sgpu.study.benchmark import Cell, Study
from sgpu.study.data_specs import ResponsesSpec
from sgpu.tracking import Tracker, open_tracker

MIN_FREE_BYTES = 200 * 2**20

# On the CPU every step of an engine takes some 60 MB from the system and gives them back. That costs a fifth
# less time in huge pages, where the kernel grants them, and less again where freed memory is kept for a
# minute, which the allocator that comes with Ray can do.
JEMALLOC = "dirty_decay_ms:60000,muzzy_decay_ms:60000,thp:always"

# Of one actor on a cluster, where the cores of its node are not known beforehand. Nodes of cluster.yaml have
# 22 or more for each GPU, which up to four actors share; without GPUs Ray counts half a core for an actor.
CLUSTER_THREADS_GPU, CLUSTER_THREADS_CPU = 4, 1


@dataclass
class Run:
    """One execution of a study. Holds no data: stages meet only through the tables in `store`."""

    study: Study
    out: Path
    progress: Progress
    address: str | None = None
    # Object storage that keeps the results; `out` is then a working folder of this machine.
    kept_in: Location | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # The first deliberate error, for a caller above an orchestrator that wraps exceptions.
    failure: SgpuError | None = None
    interrupted: bool = False
    checked_servers: set[str] = field(default_factory=set)  # models whose servers have answered
    _nodes_that_see_out: set[str] = field(default_factory=set, repr=False)

    @property
    def root(self) -> Location:
        """Where the results are kept."""
        return self.kept_in or Location.of(self.out)

    @property
    def store(self) -> Store:
        return Store(self.root)

    def keep(self, *names: str) -> None:
        """Copy files and folders of `out` to where results are kept, unless that is the same place."""
        if self.root.is_local:
            return
        for name in names:
            if (self.out / name).is_dir():
                (self.root / name).upload(self.out / name)
            elif (self.out / name).is_file():
                (self.root / name).write_bytes((self.out / name).read_bytes())

    @cached_property
    def tracker(self) -> Tracker:
        """Opened at first use: creating its database takes seconds."""
        return open_tracker(self.study.tracking.mlflow, self.study.name)

    def run_stage(self, stage: Stage) -> Outcome:
        """Run one stage, tell the person, remember what came of it.

        Raises what the runner's `run_stage` raises, and UsageError for a cluster that does not share `out`.
        """
        outcome = self._run_on_cluster(stage) if self._needs_shared_out(stage) else self._run_stage(stage)
        self.remember(outcome)
        return outcome

    def as_published(self, stage: Stage, earlier: Mapping[str, Any]) -> Stage:
        """The stage with the settings ``earlier`` if a table made from those is published, else as it is.

        For a change of code that must not make finished tables anew. What was begun but not published is
        begun again under the new settings, so that no table holds rows of both.
        """
        before = replace(stage, settings=earlier)
        key = fingerprint(before.content)
        return before if self.store.unchanged(stage.table.name, stage.partition, key) else stage

    def _run_stage(self, stage: Stage) -> Outcome:
        bound = self.study.bounds.quarantined
        return run_stage(self.store, stage, self.progress, self.address, bound)

    def _needs_shared_out(self, stage: Stage) -> bool:
        if not self.root.is_local or named_cluster(self.address) is None:
            return False
        key = fingerprint(stage.content)
        return self.store.unchanged(stage.table.name, stage.partition, key) is None

    def _run_on_cluster(self, stage: Stage) -> Outcome:
        with ray_session(self.address):
            check_shared(self.out, self._nodes_that_see_out)
            try:
                return self._run_stage(stage)
            except StageError:
                # A node that came with the work may have lacked the folder: that is then the reason to tell.
                check_shared(self.out, self._nodes_that_see_out)
                raise

    def remember(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.progress.say(outcome.line())
        if why := outcome.published.manifest.get("why_failed"):
            self.progress.say(f"  failed rows: {why}")

    def is_given(self, cell: Cell) -> bool:
        """Whether the cell's answers were sampled elsewhere."""
        return isinstance(self.study.dataset(cell.dataset), ResponsesSpec)

    def on_gpu(self) -> bool:
        """Whether engines and encoders run on CUDA; asked of this machine without importing torch.

        Raises UsageError for a study that leaves it open and runs on a cluster.
        """
        if self.study.resources.device != "auto":
            return self.study.resources.device == "cuda"
        if named_cluster(self.address):
            check_device(self.study)
        return shutil.which("nvidia-smi") is not None

    def engine_resources(
        self, engine: str, actors: int, block_rows: int | None, gpus: float = 1.0
    ) -> Resources:
        """An engine takes a whole GPU, or all cores of a CPU machine.

        vLLM gets a second block before it is done with the first: it batches the requests of both.
        """
        threads, calls = self._threads(actors), 2 if engine == "vllm" else 1
        if engine == "openai":  # which waits for a server
            return Resources(actors, 0.5, 0.0, block_rows or 16, 1, calls=2)
        if self.on_gpu():
            return Resources(actors, 1.0, gpus, block_rows or 512, threads, calls=calls)
        return Resources(actors, 0.5, 0.0, block_rows or 16, threads, _allocator(), calls)

    def light_resources(self, actors: int) -> Resources:
        """A stage without an engine: rows in larger blocks, one thread for each actor."""
        gpus = 0.25 if self.on_gpu() else 0.0
        return Resources(actors, 0.5, gpus, self.study.resources.block_rows, self._threads(actors))

    def _threads(self, actors: int) -> int:
        """Of one actor: its share of this machine's cores, or a fixed number on a cluster."""
        if named_cluster(self.address):
            return CLUSTER_THREADS_GPU if self.on_gpu() else CLUSTER_THREADS_CPU
        return max(1, available_cores() // actors)


def check_device(study: Study) -> None:
    """Raise UsageError for a study that leaves the device open; on a cluster nobody can be asked for it.

    The driver's machine is a head without GPUs, and nodes with some come only when a stage asks for them.
    """
    if study.resources.device == "auto":
        raise UsageError(
            "on a cluster a study has to say where engines and encoders run, as GPU nodes may come only when "
            "they are asked for. Set `resources: {device: cuda}` (or cpu) in the study, or give "
            "--set resources.device=cuda."
        )


def _allocator() -> dict[str, str]:
    """Environment of a process that takes and frees much: Ray's jemalloc, or huge pages with glibc's."""
    ray = importlib.util.find_spec("ray")
    library = Path(ray.origin or "").parent / "core" / "libjemalloc.so" if ray else None
    if library is not None and library.is_file():
        return {"LD_PRELOAD": str(library), "MALLOC_CONF": JEMALLOC}
    return {"THP_MEM_ALLOC_ENABLE": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def open_run(study: Study, out: Location | Path | str | None, address: str | None = None) -> Run:
    """The run of a study that keeps its results in ``out``, by default runs/<study name>.

    Raises UsageError before any work if they could not be kept there.
    """
    root = Location.of(out or Path("runs") / study.name)
    check_writable(root)
    if root.is_local:
        return Run(study, root.local, Progress(), address)
    # Nothing in it is needed again: another machine that goes on with the run has another one, also where
    # machines share their caches.
    name = hashlib.sha256(f"{socket.gethostname()} {root}".encode()).hexdigest()[:16]
    working = cache_dir() / "working" / name
    check_writable(working)
    Location.of(working.parent).make_private()
    return Run(study, working, Progress(), address, kept_in=root)


def check_writable(place: Location | Path) -> None:
    """Raise UsageError before any work if results could not be kept in ``place``."""
    root = Location.of(place)
    if not root.is_local:
        probe = root / ".writable"
        try:
            open_table(
                root / "tables"
            )  # of the two libraries that reach it this one misses credentials first
            probe.write_bytes(b"an empty object would be a folder")
            probe.delete()
        except StageError as error:
            raise UsageError(str(error)) from None
        return
    out = root.local
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write to the output folder {out}: {error.strerror}. Choose another with --out."
        ) from None
    free = shutil.disk_usage(out).free
    if free < MIN_FREE_BYTES:
        raise UsageError(
            f"the disk of {out} has {free / 2**20:.0f} MiB free; at least {MIN_FREE_BYTES / 2**20:.0f} MiB "
            "are needed. Free some, or choose another folder with --out."
        )


def as_settings(spec: Any) -> dict[str, Any]:
    """A pydantic setting as plain JSON values, for fingerprints and manifests."""
    return dict(spec.model_dump(mode="json"))


def check_quarantine(run: Run) -> None:
    """Raise QuarantineError if a stage of this study quarantined more than the study's bound."""
    bound = run.study.bounds.quarantined
    for outcome in run.outcomes:
        rejected = int(outcome.published.manifest.get("n_rejected", 0))  # rows that never became questions
        failed, rows = outcome.rows_by_status.get("failed", 0) + rejected, outcome.rows + rejected
        if failed > bound * rows:
            why = outcome.published.manifest.get("why_failed") or ""
            why = f": {why}" if why else ""
            raise QuarantineError(
                f"the study is finished, but stage {outcome.stage} quarantined {failed} of {rows} "
                f"rows of {outcome.partition}, more than the bound of {bound:.0%}{why}. The report lists "
                "them with their reasons; bounds.quarantined in the study file sets the bound."
            )
