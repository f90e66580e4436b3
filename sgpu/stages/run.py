"""State shared by the stages of one run: study, output folder, table store, outcomes."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sgpu.errors import QuarantineError, StageError, UsageError
from sgpu.hashing import sha256_hex
from sgpu.models.machine import cpu_dtype
from sgpu.models.weights import cache_dir
from sgpu.provenance import code_version
from sgpu.registry import installed_plugins
from sgpu.runtime.cluster import check_shared
from sgpu.runtime.progress import Progress
from sgpu.runtime.publication import find_due
from sgpu.runtime.runner import PoolRecord, run_stages
from sgpu.runtime.session import named_cluster, ray_session
from sgpu.runtime.shelves import UNKNOWN_PACE, Pace, Site
from sgpu.runtime.stage import Outcome, Stage
from sgpu.storage.delta_log import open_table
from sgpu.storage.location import Location
from sgpu.storage.store import Partition, Published, Store
from sgpu.study.benchmark import Cell, Study
from sgpu.study.data_specs import ResponsesSpec
from sgpu.study.resolve import Resolved, resolve, resolve_as_recorded
from sgpu.study.transfer import TransferStudy
from sgpu.tracking import open_tracker

if TYPE_CHECKING:
    from sgpu.tracking.runs import MlflowTracker

MIN_FREE_BYTES = 200 * 2**20
RUN_FACTS = "run.json"


S = TypeVar("S", Study, TransferStudy)


@dataclass
class Execution(Generic[S]):
    """One execution of a study of any kind. Holds no data: stages meet only through the tables in `store`."""

    study: S
    out: Path
    progress: Progress
    # Where the results are kept, if not in `out`: that is then a working folder of this machine.
    kept_in: Location | None = None
    notes: list[str] = field(default_factory=list)
    address: str | None = None  # of a Ray cluster

    @property
    def root(self) -> Location:
        """Where the results are kept."""
        return self.kept_in or Location.of(self.out)

    @cached_property
    def store(self) -> Store:
        """The tables of this execution."""
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
    def tracker(self) -> MlflowTracker | None:
        """Opened at first use: creating its database takes seconds. None where the study is not tracked."""
        return open_tracker(self.study.tracking.mlflow, self.study.name)


@dataclass
class Run(Execution[Study]):
    """One execution of a benchmark study."""

    outcomes: list[Outcome] = field(default_factory=list)
    pools: list[PoolRecord] = field(default_factory=list)  # what this command ran, in order
    checked_servers: set[str] = field(default_factory=set)  # models whose servers have answered
    pace: Callable[[Stage], Pace] = lambda stage: UNKNOWN_PACE
    _nodes_that_see_out: set[str] = field(default_factory=set, repr=False)

    @cached_property
    def resolved(self) -> Resolved:
        """Device and number formats of this run, as its first command recorded them; else decide and record.

        Raises UsageError on a cluster for a study that leaves its device open, and if the recorded device is
        not there.
        """
        device, file = self.study.resources.device, self.root / RUN_FACTS
        facts = file.read_json() or {}
        if "resolved" in facts:
            resolved = resolve_as_recorded(facts["resolved"], device)
            if resolved.device == "cpu" and resolved.dtype == "bfloat16" and cpu_dtype() != "bfloat16":
                self.progress.say("continuing in bfloat16, as this run began; this CPU is faster in float32")
        else:
            if named_cluster(self.address):
                check_device(self.study)
            resolved = resolve(device)
        now = {"resolved": asdict(resolved), "plugins": installed_plugins(), "code_version": code_version()}
        if not now.items() <= facts.items():
            file.write_json(facts | now)
        return resolved

    def run_stages(self, stages: Sequence[Stage]) -> list[Outcome]:
        """Run stages that do not read each other, a pool for each engine; remember and tell their outcomes.

        Returns an outcome for each partition, in the order of the stages. Raises what the runner's
        `run_stages` raises, and UsageError for a cluster that does not share `out`, or that has no GPU for a
        study on GPUs.
        """
        with self._sharing_out(stages):
            bounds, done = self.study.bounds, dict[tuple[str, Partition], Outcome]()
            for outcome in run_stages(
                self.store,
                stages,
                self.progress,
                self.address,
                bounds.quarantined,
                self._tell_pool,
                self.site,
                60 * bounds.stalled_minutes,
            ):
                done[outcome.published.table, outcome.partition] = self.remember(outcome)
        for stage in stages:
            self.progress.expected.pop(stage.pool_name, None)
        targets = dict.fromkeys((stage.table.name, stage.partition) for stage in stages)
        return [done[target] for target in targets]

    @contextmanager
    def _sharing_out(self, stages: Sequence[Stage]) -> Iterator[None]:
        """See that all nodes of a cluster share `out`, if any of the stages has work for them."""
        shares_out = self.root.is_local and named_cluster(self.address) is not None
        if not shares_out or all(due.published for due in find_due(self.store, stages)):
            yield
            return
        with ray_session(self.address):
            check_shared(self.out, self._nodes_that_see_out)
            try:
                yield
            except StageError:
                # A node that came with the work may have lacked the folder: that is then the reason to tell.
                check_shared(self.out, self._nodes_that_see_out)
                raise

    def site(self) -> Site | None:
        """Return the GPUs that the study may hold, and its pace; None on CPUs.

        Raises UsageError if they are to be counted and no GPU is up.
        """
        if not self.on_gpu():
            return None
        if (gpus := self.study.resources.gpus) == "auto":
            import ray

            with ray_session(self.address):
                gpus = int(ray.cluster_resources().get("GPU", 0))
            if not gpus:
                raise UsageError(
                    "resources.gpus is auto, and no GPU is up to be counted: give the number that the study "
                    "may hold, --set resources.gpus=N"
                )
        return Site(gpus, self.pace)

    def _tell_pool(self, record: PoolRecord) -> None:
        self.pools.append(record)
        if record.stages > 1:
            starts = f"{record.starts} {'start' if record.starts == 1 else 'starts'}"
            what = f"{record.stage} {record.engine}: {record.stages} cells"
            self.progress.say(f"{what}, {record.seconds:.1f} s, {starts}")

    def remember(self, outcome: Outcome) -> Outcome:
        """Note what came of a stage and tell the person, unless that was done."""
        if outcome.reused and outcome.published.identity in (
            before.published.identity for before in self.outcomes
        ):
            return outcome
        self.outcomes.append(outcome)
        self.progress.say(outcome.line())
        if why := outcome.published.manifest.get("why_failed"):
            self.progress.say(f"  failed rows: {why}")
        return outcome

    def questions(self, dataset: str) -> Published:
        """The questions of a data set as published now; StageError if there are none."""
        return self.store.require("questions", Partition.of(dataset=dataset))

    def responses(self, cell: Cell) -> Published:
        """The answers of a cell, likewise."""
        return self.store.require("responses", cell.partition())

    def is_given(self, cell: Cell) -> bool:
        """Whether the cell's answers were sampled elsewhere."""
        return isinstance(self.study.dataset(cell.dataset), ResponsesSpec)

    def on_gpu(self) -> bool:
        """Return whether engines and encoders run on CUDA; raises what `resolved` raises."""
        return self.resolved.device == "cuda"


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


def open_run(study: Study, out: Location | Path | str | None, address: str | None = None) -> Run:
    """The run of a study that keeps its results in ``out``, by default runs/<study name>.

    Raises UsageError before any work if they could not be kept there.
    """
    root = Location.of(out or Path("runs") / study.name)
    return Run(study, working_folder(root), Progress(), root, address=address)


@contextmanager
def run_facts(folder: Path | str, remedy: str) -> Iterator[Any]:
    """What run.json in the folder of a finished study says, to be read in here.

    Raises UsageError with the end of a ``remedy`` where there is none, or it is not what is read of it.
    """
    facts = Location.of(folder) / RUN_FACTS
    try:
        yield json.loads(facts.read_bytes())
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{folder} does not hold a finished study ({facts.name}: {error}); run `sgpu benchmark` {remedy}"
        ) from None


def working_folder(root: Location) -> Path:
    """The folder of this machine that a run with its results in ``root`` works in; a local root itself.

    Raises UsageError before any work if results could not be kept in ``root``.
    """
    check_writable(root)
    if root.is_local:
        return root.local
    # Nothing in it is needed again: another machine that goes on with the run has another one, also where
    # machines share their caches.
    working = cache_dir() / "working" / sha256_hex(f"{socket.gethostname()} {root}")[:16]
    check_writable(working)
    Location.of(working.parent).make_private()
    return working


def check_writable(folder: Location | Path) -> None:
    """Raise UsageError before any work if results could not be kept in ``folder``."""
    root = Location.of(folder)
    if not root.is_local:
        probe = root / ".writable"
        try:
            # Of the two libraries that reach it this one misses credentials first.
            open_table(root / "tables")
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
        rejected = outcome.published.n_rejected
        failed, rows = outcome.rows_by_status.get("failed", 0) + rejected, outcome.rows + rejected
        if failed > bound * rows:
            why = outcome.published.manifest.get("why_failed") or ""
            why = f": {why}" if why else ""
            raise QuarantineError(
                f"the study is finished, but stage {outcome.stage} quarantined {failed} of {rows} "
                f"rows of {outcome.partition}, more than the bound of {bound:.0%}{why}. The report lists "
                "them with their reasons; bounds.quarantined in the study file sets the bound."
            )
