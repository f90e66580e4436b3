"""Who does the work: processes under Ray that are replaced when they die, or this process alone.

Tasks are plain calls and not a Ray Data pipeline. A task reads files and leaves files, so that nothing would
flow between operators, and whoever dies, the files tell what is done. Results stay out of Ray's object store,
a worker has one task at a time, and the same processes read logs and score.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from sgpu.errors import StageError
from sgpu.provenance import available_cores
from sgpu.scoring.isolation import LONE_DEATHS, TRIES, FailureRecord, RecordCall
from sgpu.scoring.models.scorer import Scorer
from sgpu.scoring.plan import DayPlan, Models, working_folder
from sgpu.scoring.sets.ingest import Attempt, ingest
from sgpu.scoring.sets.joining import join
from sgpu.scoring.settings import ScoreSettings
from sgpu.scoring.slices import score_slice
from sgpu.storage.location import Location

# A worker may die of many things. Work that ends several is searched for the file, the rows or the set that
# does it, but not for ever.
MOST_DEATHS = 200


class NightWorker:
    """Its methods take and give names and counts; rows stay in files. All may be repeated.

    ``work`` is the address of a plan's folder. ``scorer`` names ("module:function") what opens the models.
    """

    def __init__(self, failures: RecordCall, scorer: str, models: str) -> None:
        self._failures = failures
        module, _, name = scorer.partition(":")
        self._open_scorer = getattr(importlib.import_module(module), name)
        self._models = models
        self._plans: dict[str, DayPlan] = {}
        self._opened: tuple[Models, Scorer] | None = None

    def ingest(self, work: str, unit: int) -> dict[str, Any]:
        with self._bounded(f"reading unit {unit} in {work}") as alone:
            return ingest(self._plan(work), unit, alone)

    def join(self, work: str, part: int) -> dict[str, Any]:
        with self._bounded(f"joining part {part} in {work}") as alone:
            return join(self._plan(work), part, alone)

    def score(self, work: str, name: str) -> float:
        with self._bounded(f"scoring {name} in {work}"):
            plan = self._plan(work)
            return score_slice(plan, name, self._scorer(plan), self._failures)

    def profile(self, work: str) -> Any:
        """The training profile of the plan's champion; None if it has none."""
        return self._scorer(self._plan(work)).profile

    def _plan(self, work: str) -> DayPlan:
        """The last one is kept, for as long as this worker lives: a later run may leave another there."""
        if work not in self._plans:
            self._plans = {work: DayPlan.load(Location.of(work))}
        return self._plans[work]

    def _scorer(self, plan: DayPlan) -> Scorer:
        """Of the days of a run most have the same models."""
        if self._opened is None or self._opened[0] != plan.models:
            self._opened = None  # the old models go before the new ones come
            self._opened = (plan.models, self._open_scorer(plan, self._models))
        return self._opened[1]

    @contextmanager
    def _bounded(self, what: str) -> Iterator[Attempt | None]:
        """How to try its parts by themselves, once it has ended enough workers; None before."""
        if (deaths := self._failures("begin", what)) >= MOST_DEATHS:
            raise StageError(
                f"{what} has ended its worker process {deaths} times. Look at the machine's memory."
            )
        yield partial(self._alone, what) if deaths >= TRIES else None
        self._failures("end", what)

    @contextmanager
    def _alone(self, what: str, part: int) -> Iterator[int]:
        """One try at a part of what ends workers; how many have ended there. A part given up stays so."""
        deaths = self._failures("begin", f"{what}, part {part}")
        yield deaths
        if deaths < LONE_DEATHS:
            self._failures("end", f"{what}, part {part}")


SCORER = "sgpu.scoring.models.pinning:open_scorer"
Calls = Sequence[tuple[Any, ...]]
# Workers that die one after the other before they are ready.
MOST_STARTS = 8


class InProcessPool:
    """Calls methods of `NightWorker` in this process, one after the other, each with arguments of its own."""

    def __init__(self, models: str, scorer: str = SCORER) -> None:
        record = FailureRecord()
        self._worker = NightWorker(lambda method, *given: getattr(record, method)(*given), scorer, models)

    def each(self, method: str, calls: Calls) -> Iterator[tuple[int, Any]]:
        """(place of the call, result) as they come."""
        for place, arguments in enumerate(calls):
            yield place, getattr(self._worker, method)(*arguments)

    def close(self) -> None:
        return None


def _remote_call(actor: Any, method: str, *arguments: Any) -> Any:
    """`RecordCall` of a `FailureRecord` that lives in an actor, from inside a worker."""
    import ray

    return ray.get(getattr(actor, method).remote(*arguments))


class RayWorkerPool:
    """As `InProcessPool`, by workers in processes of their own; nothing is started before the first call.

    A worker that is lost is replaced, and what it was at goes to any that is ready: where a node has gone for
    good, there is never room for the new one, and the others finish without it.
    """

    def __init__(self, settings: ScoreSettings, models: str, scorer: str = SCORER) -> None:
        self._settings = settings
        self._given = (scorer, models)
        self._hire: Callable[[], Any] | None = None
        self._free: list[Any] = []
        self._starting: dict[Any, Any] = {}  # by what is answered when they are ready
        self._failed_starts = 0
        self._stack = ExitStack()

    def each(self, method: str, calls: Calls) -> Iterator[tuple[int, Any]]:
        if not calls:
            return
        self._start()
        import ray

        waiting = list(enumerate(calls))[::-1]
        running: dict[Any, tuple[tuple[int, tuple[Any, ...]], Any]] = {}
        try:
            while waiting or running:
                while self._free and waiting:
                    call, worker = waiting.pop(), self._free.pop()
                    running[getattr(worker, method).remote(*call[1])] = (call, worker)
                [done], _ = ray.wait([*running, *self._starting], num_returns=1)
                if done in self._starting:
                    self._welcome(done)
                    continue
                (place, arguments), worker = running.pop(done)
                if _lost(done):
                    waiting.append((place, arguments))
                    self._add()
                else:
                    self._free.append(worker)
                    yield place, ray.get(done)
        finally:
            self._free += [worker for _, worker in running.values()]

    def close(self) -> None:
        """Stop the workers, and Ray if it was started here."""
        self._free, self._starting, self._hire = [], {}, None
        self._stack.close()

    def _start(self) -> None:
        if self._hire is None:
            from sgpu.runtime.dataflow import ledger_actor
            from sgpu.runtime.session import ray_session

            self._stack.enter_context(ray_session(self._settings.address))
            # On the node of the driver, and held by it: the record must outlive every worker.
            kind: Any = FailureRecord
            record = partial(_remote_call, ledger_actor(kind))
            self._hire, wanted = _hiring(self._settings, record, *self._given)
            for _ in range(wanted):
                self._add()

    def _add(self) -> None:
        assert self._hire is not None
        worker = self._hire()
        self._starting[worker.__ray_ready__.remote()] = worker

    def _welcome(self, ready: Any) -> None:
        worker = self._starting.pop(ready)
        if not _lost(ready):
            self._free.append(worker)
            self._failed_starts = 0
            return
        self._failed_starts += 1
        if self._failed_starts >= MOST_STARTS:
            raise StageError(
                f"{MOST_STARTS} workers died before they were ready. Check the memory of the machines, and "
                "that all have the same versions of Python and SGPU."
            )
        self._add()


def _lost(done: Any) -> bool:
    """Whether a call has ended because its worker did, and not with a result or an error of its own."""
    import ray
    from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError

    try:
        ray.get(done)
    except RayTaskError:
        return False  # that of another actor, such as the record, may be inside
    except Exception as error:
        return isinstance(error, RayActorError | OutOfMemoryError)
    return False


def _hiring(
    settings: ScoreSettings, record: RecordCall, scorer: str, models: str
) -> tuple[Callable[[], Any], int]:
    """What starts one more worker, and how many are wanted."""
    import ray

    from sgpu.runtime.session import named_cluster

    local = named_cluster(settings.address) is None
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0)) if settings.device != "cpu" else 0
    cores = available_cores() if local else max(1, int(resources.get("CPU", 1)))
    wanted = settings.workers or gpus or cores
    kind = ray.remote(NightWorker).options(
        # A local Ray has this machine to itself; logical CPUs would only bound how many workers there may be.
        num_cpus=0 if local else 1,
        num_gpus=min(1.0, gpus / wanted) if gpus else 0,
        runtime_env={"env_vars": {"OMP_NUM_THREADS": str(max(1, cores // wanted) if local else 1)}},
    )
    return lambda: kind.remote(record, scorer, models), wanted


WorkerPool = InProcessPool | RayWorkerPool


def open_pool(settings: ScoreSettings, scorer: str = SCORER) -> WorkerPool:
    """The pool that the settings ask for."""
    models = str(working_folder(settings))
    return InProcessPool(models, scorer) if settings.workers == 0 else RayWorkerPool(settings, models, scorer)
