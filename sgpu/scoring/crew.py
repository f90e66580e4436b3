"""Who does the work: processes under Ray that are replaced when they die, or this process alone.

Tasks are plain calls and not a Ray Data pipeline. A task reads files and leaves files, so that nothing would
flow between operators, and whoever dies, the files tell what is done. Results stay out of Ray's object store,
a worker has one task at a time, and the same processes read logs and score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from sgpu.errors import StageError
from sgpu.provenance import available_cores
from sgpu.scoring.isolation import Suspicions
from sgpu.scoring.settings import ScoreSettings
from sgpu.scoring.worker import Worker

SCORER = "sgpu.scoring.models.open_scorer:open_scorer"
Calls = Sequence[tuple[Any, ...]]
# Workers that die one after the other before they are ready.
MOST_STARTS = 8


class Crew(Protocol):
    """Calls methods of `Worker`, each with arguments of its own."""

    def each(self, method: str, calls: Calls) -> Iterator[tuple[int, Any]]:
        """(place of the call, result) as they come."""
        ...

    def close(self) -> None: ...


def open_crew(settings: ScoreSettings, models: str, scorer: str = SCORER) -> Crew:
    """The crew that the settings ask for; nothing is started before the first call."""
    return Alone(models, scorer) if settings.workers == 0 else RayCrew(settings, models, scorer)


class Alone:
    """This process, one call after the other."""

    def __init__(self, models: str, scorer: str = SCORER) -> None:
        suspicions = Suspicions()
        self._worker = Worker(lambda method, *given: getattr(suspicions, method)(*given), scorer, models)

    def each(self, method: str, calls: Calls) -> Iterator[tuple[int, Any]]:
        for place, arguments in enumerate(calls):
            yield place, getattr(self._worker, method)(*arguments)

    def close(self) -> None:
        return None


class RemoteBook:
    """`Suspicions` that live in an actor, from inside a worker."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __call__(self, method: str, *arguments: Any) -> Any:
        import ray

        return ray.get(getattr(self._actor, method).remote(*arguments))


class RayCrew:
    """Workers in processes of their own.

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
        self._book: RemoteBook | None = None

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
        self._free, self._starting, self._hire, self._book = [], {}, None, None
        self._stack.close()

    def _start(self) -> None:
        if self._hire is None:
            from sgpu.runtime.dataflow import ledger_actor
            from sgpu.runtime.session import ray_session

            self._stack.enter_context(ray_session(self._settings.address))
            # On the node of the driver, and held by it: the book must outlive every worker.
            kind: Any = Suspicions
            self._book = RemoteBook(ledger_actor(kind))
            self._hire, wanted = _hiring(self._settings, self._book, *self._given)
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
                f"{MOST_STARTS} workers died before they were ready. Look at the memory of the machines, and "
                "whether all have the same versions of Python and SGPU."
            )
        self._add()


def _lost(done: Any) -> bool:
    """Whether a call has ended because its worker did, and not with a result or an error of its own."""
    import ray
    from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError

    try:
        ray.get(done)
    except RayTaskError:
        return False  # that of another actor, such as the book, may be inside
    except (RayActorError, OutOfMemoryError):
        return True
    except Exception:
        return False
    return False


def _hiring(
    settings: ScoreSettings, book: RemoteBook, scorer: str, models: str
) -> tuple[Callable[[], Any], int]:
    """What starts one more worker, and how many are wanted."""
    import ray

    from sgpu.runtime.address import named_cluster

    local = named_cluster(settings.address) is None
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0)) if settings.device != "cpu" else 0
    cores = available_cores() if local else max(1, int(resources.get("CPU", 1)))
    wanted = settings.workers or gpus or cores
    kind = ray.remote(Worker).options(
        # A local Ray has this machine to itself; logical CPUs would only bound how many workers there may be.
        num_cpus=0 if local else 1,
        num_gpus=min(1.0, gpus / wanted) if gpus else 0,
        runtime_env={"env_vars": {"OMP_NUM_THREADS": str(max(1, cores // wanted) if local else 1)}},
    )
    return lambda: kind.remote(book, scorer, models, wanted), wanted
