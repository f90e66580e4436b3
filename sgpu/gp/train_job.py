"""All fits of a study as one Ray Train job: every worker fits its share, and finished fits survive a crash.

The fits are many, small and independent, so the workers share no gradients and need no process group:
this is Ray Train for placement, restarts and checkpoints. Distributing one fit was measured to be slower.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from sgpu.errors import DataError, IntegrityError, SgpuError, StageError, UsageError
from sgpu.gp.classifier import GPClassifier
from sgpu.gp.fitting import FitReport
from sgpu.trainers import TRAINERS, Fitted, Trainer

MAX_FAILURES = 2
START_TIMEOUT = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"
START_TIMEOUT_S = 600
TRAIN_FOLDER = "_ray_train"


@dataclass(frozen=True)
class FitTask:
    """One fit of a trained method: ``rows`` and ``settings`` are what its trainer takes, but for the seed.

    ``key`` is a relative path such as "model/dataset", unique in a job.
    """

    key: str
    rows: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    method: str = "sgpu"

    @property
    def trainer(self) -> Trainer:
        trainer: Trainer = TRAINERS.get(self.method)
        return trainer


@dataclass(frozen=True)
class FitResult:
    """A finished fit in ``folder``, or the ``problem`` why its rows cannot be fitted.

    ``reused`` says that an earlier worker or run had made it; ``seconds`` is the wall time of this one.
    """

    key: str
    fingerprint: str
    folder: Path | None
    problem: str | None
    reused: bool
    seconds: float

    def load(self) -> GPClassifier:
        """The classifier of a task of "sgpu"; DataError if there is none."""
        if self.folder is None:
            raise DataError(f"{self.key} has no fit: {self.problem}")
        return GPClassifier.load(self.folder)

    @property
    def report(self) -> FitReport:
        return self.load().fit_report


Fit = Callable[[FitTask, Path], FitResult]


def fingerprint(task: FitTask) -> str:
    """Names a fit by all that it depends on: the bytes of its rows, settings, seed and the recipe.

    Raises DataError if the rows cannot be read.
    """
    try:
        with task.rows.open("rb") as file:
            rows = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"the rows of fit {task.key!r} cannot be read: {error}") from error
    content = [*task.trainer.recipe, rows, sorted(task.settings.items()), task.seed]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def finished(task: FitTask, out: Path) -> FitResult | None:
    """The fit that an earlier worker or run made of the same task, if there is one."""
    start = time.perf_counter()
    name = fingerprint(task)
    folder = out / task.key / name
    if not (folder / task.trainer.description).is_file():
        return None
    return FitResult(task.key, name, folder, None, True, time.perf_counter() - start)


def fit_task(task: FitTask, out: Path) -> FitResult:
    """Fit one task into out/key/fingerprint, unless it is there; errors about its rows become its problem."""
    if kept := finished(task, out):
        return kept
    start = time.perf_counter()
    name = fingerprint(task)
    try:
        fitted = task.trainer.fit(task.rows, task.settings, task.seed)
    except SgpuError as error:
        return FitResult(task.key, name, None, str(error), False, time.perf_counter() - start)
    folder = out / task.key / name
    _publish(fitted, folder, task.trainer.description)
    return FitResult(task.key, name, folder, None, False, time.perf_counter() - start)


def run_train_job(
    tasks: Sequence[FitTask],
    out: Path,
    num_workers: int,
    *,
    cpus_per_worker: float = 1.0,
    fit: Fit = fit_task,
) -> list[FitResult]:
    """Fit all tasks with ``num_workers`` Ray Train workers (0: here, without Ray), in order.

    ``out`` and the rows must be on storage that all workers see. A worker that dies restarts the group up
    to MAX_FAILURES times, and finished fits are kept. Raises UsageError for keys that clash or leave
    ``out``, DataError for a file of rows that cannot be read, StageError if the job gives up; then run it
    again, and only what is missing is fitted.
    """
    _check_keys([task.key for task in tasks])
    out = out.resolve()
    tasks = [replace(task, rows=task.rows.resolve(), settings=dict(task.settings)) for task in tasks]
    # Asked here first: a run with nothing left to fit must not wait for workers to start.
    found = {task.key: kept for task in tasks if (kept := finished(task, out))}
    left = [task for task in tasks if task.key not in found]
    if num_workers == 0:
        found |= {task.key: fit(task, out) for task in left}
    elif left:
        found |= _run_workers(left, out, num_workers, cpus_per_worker, fit)
    missing = [task.key for task in tasks if task.key not in found]
    if missing:
        raise StageError(f"the training job ended without a fit of {', '.join(missing)}; run it again")
    return [found[task.key] for task in tasks]


def _run_workers(
    tasks: list[FitTask], out: Path, num_workers: int, cpus: float, fit: Fit
) -> dict[str, FitResult]:
    # The base of TorchTrainer without its process group, which independent fits do not need.
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    # Ray passes this on from here; a minute is short for workers that import torch on a busy machine.
    os.environ.setdefault(START_TIMEOUT, str(START_TIMEOUT_S))
    workers = min(num_workers, len(tasks))
    trainer = DataParallelTrainer(
        _fit_share,
        train_loop_config={"tasks": tasks, "out": out, "fit": fit},
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": cpus}),
        run_config=RunConfig(
            # A name of its own: Ray would take a known one for a run to resume, which `out` already does.
            name=f"fits-{uuid.uuid4().hex[:12]}",
            storage_path=str(out / TRAIN_FOLDER),
            failure_config=FailureConfig(max_failures=MAX_FAILURES),
        ),
    )
    try:
        checkpoint = trainer.fit().checkpoint
    except TrainingFailedError as error:
        raise StageError(
            f"the training job gave up after {MAX_FAILURES + 1} tries: {error}. "
            f"Finished fits are kept in {out}; run it again."
        ) from error
    with checkpoint.as_directory() as folder:
        shares = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("rank-*.json"))]
    return {row["key"]: _from_json(row) for share in shares for row in share}


def _fit_share(config: dict[str, Any]) -> None:
    """What a worker does: fit every world_size-th task, then report once, with what it has as checkpoint.

    Reports are barriers, so one a fit would make every worker wait for the slowest in each round; what
    survives a crash are the folders of finished fits.
    """
    import ray.train
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    with threadpool_limits(1):
        results = [config["fit"](task, config["out"]) for task in config["tasks"][rank::world]]
    with TemporaryDirectory() as folder:
        rows = [{**asdict(result), "folder": result.folder and str(result.folder)} for result in results]
        Path(folder, f"rank-{rank:05d}.json").write_text(json.dumps(rows))
        metrics = {"fits": len(results), "reused": sum(result.reused for result in results)}
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


def _from_json(row: dict[str, Any]) -> FitResult:
    return FitResult(**{**row, "folder": row["folder"] and Path(row["folder"])})


def _publish(fitted: Fitted, folder: Path, description: str) -> None:
    """Make the folder appear whole: a worker killed half-way leaves nothing that looks finished."""
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    fitted.save(partial)
    try:
        partial.rename(folder)
    except OSError as error:
        # Another worker was first; equal fits are equal files, so either will do.
        shutil.rmtree(partial)
        if not (folder / description).is_file():
            raise IntegrityError(f"{folder} is there but holds no fit; remove it and run again") from error


def _check_keys(keys: Sequence[str]) -> None:
    for key in keys:
        path = PurePosixPath(key)
        if not path.parts or path.is_absolute() or ".." in path.parts or path.parts[0] == TRAIN_FOLDER:
            raise UsageError(f"fit key {key!r} is not a relative path inside the folder of fits")
    if len(set(keys)) != len(keys):
        twice = sorted({key for key in keys if keys.count(key) > 1})
        raise UsageError(f"fit keys are used twice: {', '.join(twice)}; every fit needs its own")
