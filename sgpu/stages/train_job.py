"""All fits of a study as one Ray Train job: a worker takes the longest fit that is left, and so on.

The fits are many, small and independent, so the workers share no gradients and need no process group:
this is Ray Train for placement and restarts; the checkpoint of a fit is its finished folder.

A pooled fit is one task of one worker too. 150,000 rows take 18 CPU seconds on one thread
(`bench.pooled_fit`), most of it the search on a part of the rows. A worker that dies begins the fit anew, and
as nothing in it is random, ends at the same numbers. Sharing the passes over all rows among two processes,
which exchange a matrix of 256 x 257 numbers after each, was measured to take 3.0 to 3.3 s in place of 6.3 s
for six passes over 100,000 rows, two threads of one process 3.3 to 4.0 s; but a group of Ray Train workers
takes 10 s and more to start. From this, not measured: sharing would begin to pay at about half a million
rows, and there a second thread does nearly the same (docs/performance.md has figures up to a million).
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from sgpu.errors import DataError, SgpuError, StageError, UsageError
from sgpu.gp.classifier import GPClassifier
from sgpu.gp.fitting import RECIPE
from sgpu.gp.kernels import KERNELS
from sgpu.gp.persistence import DESCRIPTION, FORMAT, Fitted, publish, read_pool, resolved
from sgpu.hashing import sha256_hex
from sgpu.provenance import available_cores
from sgpu.runtime.cluster import check_shared
from sgpu.runtime.dataflow import ledger_actor
from sgpu.runtime.ledger import IN_WORK, SINCE, Locked, ask
from sgpu.runtime.progress import Progress
from sgpu.runtime.session import named_cluster, ray_session
from sgpu.storage.location import Location

MAX_FAILURES = 2
START_TIMEOUT = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"
START_TIMEOUT_S = 600
TRAIN_FOLDER = "_ray_train"
HERE_S = 60.0  # of fits that this process makes, unless a number of workers is given
CLUSTER_FITTERS = 8


@dataclass(frozen=True)
class Trainer:
    """Fits one method.

    ``fit`` takes a file of training rows, settings and a seed; it raises SgpuError where these rows cannot
    be fitted. ``description`` is the file that a saved fit writes last. ``recipe`` names the code and the
    format: another recipe is another fit of the same rows.
    """

    fit: Callable[[Path, Mapping[str, Any], int], Fitted]
    description: str
    recipe: tuple[str | int, ...]


def _fit(rows: Path, settings: Mapping[str, Any], seed: int) -> GPClassifier:
    pool = read_pool(rows)
    return GPClassifier(**settings, seed=seed).fit(pool.x, pool.y, pool.weights, pool.cells)


TRAINER = Trainer(_fit, DESCRIPTION, (RECIPE, FORMAT))


@dataclass(frozen=True)
class FitTask:
    """One fit of a trained method: ``rows`` and ``settings`` are what its trainer takes, but for the seed.

    ``key`` is a relative path such as "model/dataset", unique in a job. ``seconds`` is about what it takes on
    one thread: longer ones are begun first.
    """

    key: str
    rows: Path | Location
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    trainer: Trainer = TRAINER
    seconds: float = 1.0


@dataclass(frozen=True)
class FitResult:
    """A finished fit in ``location``, or the ``problem`` why its rows cannot be fitted.

    ``reused`` says that an earlier worker or run had made it; ``seconds`` is the wall time of this one.
    """

    key: str
    fingerprint: str
    location: Location | None
    problem: str | None
    reused: bool
    seconds: float

    @property
    def folder(self) -> Path | None:
        """Where it is on this machine; None where there is no fit, or it is in object storage."""
        return self.location.local if self.location and self.location.is_local else None

    def load(self) -> GPClassifier:
        """The classifier of a task with the default trainer; DataError if there is none."""
        if self.location is None:
            raise DataError(f"{self.key} has no fit: {self.problem}")
        with self.location.on_this_machine() as folder:
            return GPClassifier.load(folder)


Fit = Callable[[FitTask, Path | Location], FitResult]


def fingerprint_fit(task: FitTask) -> str:
    """Return a fit's name, a hash of what it depends on: bytes of its rows, settings, seed and the recipe.

    Raises DataError if the rows cannot be read.
    """
    try:
        rows = sha256_hex(Location.of(task.rows).read_bytes())
    except OSError as error:
        raise DataError(f"the rows of fit {task.key!r} cannot be read: {error}") from error
    plugin = KERNELS.plugins(str(task.settings.get("kernel"))).items()
    content = [*task.trainer.recipe, rows, sorted(task.settings.items()), task.seed, *plugin]
    return sha256_hex(json.dumps(content))[:16]


def finished(task: FitTask, out: Path | Location) -> FitResult | None:
    """The fit that an earlier worker or run made of the same task, if there is one."""
    start, name = time.perf_counter(), fingerprint_fit(task)
    location = Location.of(out) / task.key / name
    if not (location / task.trainer.description).is_file():
        return None
    return FitResult(task.key, name, location, None, True, time.perf_counter() - start)


def fit_task(task: FitTask, out: Path | Location) -> FitResult:
    """Fit one task into out/key/fingerprint, unless it is there; errors about its rows become its problem."""
    if kept := finished(task, out):
        return kept
    start, name = time.perf_counter(), fingerprint_fit(task)
    location: Location | None = None
    problem = None
    try:
        with Location.of(task.rows).on_this_machine() as rows:
            fitted = task.trainer.fit(rows, task.settings, task.seed)
    except SgpuError as error:
        problem = str(error)
    else:
        location = Location.of(out) / task.key / name
        publish(fitted, location, task.trainer.description)
    return FitResult(task.key, name, location, problem, False, time.perf_counter() - start)


class Desk:
    """Gives tasks to workers, the longest first, and keeps their results: an actor, or `Locked`.

    Dealt out beforehand, some workers would get all the long fits.
    """

    def __init__(self, tasks: Sequence[FitTask]) -> None:
        self._open = deque(sorted(tasks, key=lambda task: task.seconds, reverse=True))
        self._taken: dict[int, FitTask] = {}
        self._results: dict[str, FitResult] = {}
        self._began = time.monotonic()

    def begin(self, worker: int) -> None:
        """Take back what a worker of this number, which has died, was fitting; it comes last from now on."""
        if (task := self._taken.pop(worker, None)) is not None:
            self._open.append(task)

    def take(self, worker: int) -> FitTask | None:
        """Return the longest task that is left; None if there is none."""
        if self._open:
            self._taken[worker] = self._open.popleft()
        return self._taken.get(worker)

    def put(self, result: FitResult) -> None:
        """Keep the result of a task that was taken."""
        self._taken = {number: task for number, task in self._taken.items() if task.key != result.key}
        self._results[result.key] = result

    def results(self) -> dict[str, FitResult]:
        """Return the results so far by their keys."""
        return self._results

    def progress(self) -> dict[str, float]:
        """Return how many fits are made and how many are in work, for a progress bar."""
        since = time.monotonic() - self._began
        return {"rows": len(self._results), IN_WORK: len(self._taken), SINCE: since}


def run_train_job(
    tasks: Sequence[FitTask],
    out: Path | Location,
    fitters: int | None = None,
    *,
    address: str | None = None,
    progress: Progress | None = None,
    cpus_per_worker: float = 1.0,
    fit: Fit = fit_task,
) -> list[FitResult]:
    """Fit all tasks, in order, with ``fitters`` Ray Train workers; see `count_workers`.

    ``out`` must be on storage that all workers see; rows are copied to it if it is in object storage. A
    worker that dies restarts the group up to MAX_FAILURES times, and finished fits are kept. Raises
    UsageError for keys that clash or leave ``out``, DataError for a file of rows that cannot be read,
    StageError if the job gives up; then run it again, and only what is missing is fitted.
    """
    _check_keys([task.key for task in tasks])
    out = resolved(out)
    tasks = [replace(task, rows=_rows_beside(task, out), settings=dict(task.settings)) for task in tasks]
    # Asked here first: a run with nothing left to fit must not wait for workers to start.
    results = {task.key: kept for task in tasks if (kept := finished(task, out))}
    due = [task for task in tasks if task.key not in results]
    workers = count_workers(due, fitters, address)
    with ray_session(address) if workers else nullcontext():
        if workers and named_cluster(address) and isinstance(out, Path):
            check_shared(out, set())
        desk = ledger_actor(Desk, due) if workers else Locked(Desk(due))
        bar = (progress or Progress()).stage("fits", len(tasks), len(results))
        with bar as shown, shown.follow(lambda: ask(desk, "progress")):
            if workers:
                _run_workers(desk, out, workers, cpus_per_worker, fit)
            else:
                _fit_from(desk, 0, fit, out)
        results |= ask(desk, "results")
    missing = [task.key for task in tasks if task.key not in results]
    if missing:
        raise StageError(f"the training job ended without a fit of {', '.join(missing)}; run it again")
    return [results[task.key] for task in tasks]


def count_workers(due: Sequence[FitTask], fitters: int | None, address: str | None) -> int:
    """Return how many Ray Train workers make the fits that are due; 0: this process makes them.

    Unless a number is given, fits of a minute are made in this process where there is no cluster: a group of
    workers takes 20 CPU seconds to start (six processes that import Ray Train, two of them torch).
    """
    cluster = named_cluster(address) is not None
    if fitters is None and (cluster or sum(task.seconds for task in due) > HERE_S):
        fitters = CLUSTER_FITTERS if cluster else available_cores()
    # A group of one worker on this machine does the same at the same pace.
    return 0 if fitters is None or (fitters == 1 and not cluster) else min(fitters, len(due))


def _rows_beside(task: FitTask, out: Path | Location) -> Path | Location:
    """Return the rows of a task where all workers see them."""
    rows, folder = Location.of(task.rows), Location.of(out)
    if folder.is_local or not rows.is_local:
        return resolved(task.rows)
    shared = folder / task.key / rows.name
    shared.write_bytes(rows.read_bytes())
    return shared


def _run_workers(desk: Any, out: Path | Location, workers: int, cpus: float, fit: Fit) -> None:
    # The base of TorchTrainer without its process group, which independent fits do not need.
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    # Ray passes this on from here; a minute is short for workers that import torch on a busy machine.
    os.environ.setdefault(START_TIMEOUT, str(START_TIMEOUT_S))
    storage = Location.of(out) / TRAIN_FOLDER
    trainer = DataParallelTrainer(
        _fit_as_worker,
        train_loop_config={"desk": desk, "out": out, "fit": fit},
        # Spread, or all workers would go to one node, and with it.
        scaling_config=ScalingConfig(
            num_workers=workers, resources_per_worker={"CPU": cpus}, placement_strategy="SPREAD"
        ),
        run_config=RunConfig(
            # A name of its own: Ray would take a known one for a run to resume, which `out` already does.
            name=f"fits-{uuid.uuid4().hex[:12]}",
            storage_path=storage.path,
            storage_filesystem=None if storage.is_local else storage.filesystem,
            failure_config=FailureConfig(max_failures=MAX_FAILURES),
        ),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        raise StageError(
            f"the training job gave up after {MAX_FAILURES + 1} tries: {error}. "
            f"Finished fits are kept in {out}; run it again."
        ) from error


def _fit_as_worker(config: dict[str, Any]) -> None:
    import ray.train

    _fit_from(config["desk"], ray.train.get_context().get_world_rank(), config["fit"], config["out"])


def _fit_from(desk: Any, worker: int, fit: Fit, out: Path | Location) -> None:
    """Fit one task after the other until the desk has none left; what is finished survives a crash."""
    ask(desk, "begin", worker)
    with _one_thread():
        while (task := ask(desk, "take", worker)) is not None:
            ask(desk, "put", fit(task, out))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Most fits are so small that a second thread doubles their time, and far more on a busy machine."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _check_keys(keys: Sequence[str]) -> None:
    for key in keys:
        path = PurePosixPath(key)
        if not path.parts or path.is_absolute() or ".." in path.parts or path.parts[0] == TRAIN_FOLDER:
            raise UsageError(f"fit key {key!r} is not a relative path inside the folder of fits")
    if len(set(keys)) != len(keys):
        twice = sorted({key for key in keys if keys.count(key) > 1})
        raise UsageError(f"fit keys are used twice: {', '.join(twice)}; every fit needs its own")
