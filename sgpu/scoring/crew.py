"""Who does the work: processes under Ray that restart when they die, or this process alone.

Tasks are plain calls and not a Ray Data pipeline. A task reads files and leaves files, so that nothing would
flow between operators, and whoever dies, the files tell what is done. Results stay out of Ray's object store,
a worker has one task at a time, and the same processes read logs and score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from sgpu.provenance import available_cores
from sgpu.scoring.isolation import Suspicions
from sgpu.scoring.settings import ScoreSettings
from sgpu.scoring.worker import Worker

SCORER = "sgpu.scoring.open_scorer:open_scorer"
Calls = Sequence[tuple[Any, ...]]


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
    """Workers in processes of their own."""

    def __init__(self, settings: ScoreSettings, models: str, scorer: str = SCORER) -> None:
        self._settings = settings
        self._given = (scorer, models)
        self._actors: list[Any] = []
        self._stack = ExitStack()
        self._book: RemoteBook | None = None

    def each(self, method: str, calls: Calls) -> Iterator[tuple[int, Any]]:
        if not calls:
            return
        free = self._started()
        import ray

        waiting = list(enumerate(calls))[::-1]
        running: dict[Any, tuple[int, Any]] = {}
        while waiting or running:
            while free and waiting:
                (place, arguments), actor = waiting.pop(), free.pop()
                running[getattr(actor, method).remote(*arguments)] = (place, actor)
            [ready], _ = ray.wait(list(running), num_returns=1)
            place, actor = running.pop(ready)
            free.append(actor)
            yield place, ray.get(ready)

    def close(self) -> None:
        """Stop the workers, and Ray if it was started here."""
        self._actors, self._book = [], None
        self._stack.close()

    def _started(self) -> list[Any]:
        if not self._actors:
            from sgpu.stages.dataflow import ledger_actor
            from sgpu.stages.session import ray_session

            self._stack.enter_context(ray_session(self._settings.address))
            # On the node of the driver, and held by it: the book must outlive every worker.
            kind: Any = Suspicions
            self._book = RemoteBook(ledger_actor(kind))
            self._actors = _actors(self._settings, self._book, *self._given)
        return list(self._actors)


def _actors(settings: ScoreSettings, book: RemoteBook, scorer: str, models: str) -> list[Any]:
    import ray

    from sgpu.stages.address import named_cluster

    local = named_cluster(settings.address) is None
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0)) if settings.device != "cpu" else 0
    cores = available_cores() if local else max(1, int(resources.get("CPU", 1)))
    wanted = settings.workers or gpus or cores
    kind = ray.remote(Worker).options(
        # A local Ray has this machine to itself; logical CPUs would only bound how many workers there may be.
        num_cpus=0 if local else 1,
        num_gpus=min(1.0, gpus / wanted) if gpus else 0,
        max_restarts=-1,
        max_task_retries=-1,
        runtime_env={"env_vars": {"OMP_NUM_THREADS": str(max(1, cores // wanted) if local else 1)}},
    )
    return [kind.remote(book, scorer, models, wanted) for _ in range(wanted)]
