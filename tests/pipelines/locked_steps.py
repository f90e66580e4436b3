"""A Dagster job of two steps that want the same place at once, each in a process of its own."""

# No postponed annotations here: Dagster reads the types of `context` at definition.

import time
from pathlib import Path

import dagster as dg

from pipelines.assets import StudyResource
from sgpu.errors import HeldError
from sgpu.runtime.lock import run_lock
from sgpu.stages.run import Run

STEPS = ("one", "two")


def is_locked(run: Run) -> bool:
    """Whether a command would be refused."""
    try:
        with run_lock(run.root, run.out):
            return False
    except HeldError:
        return True


def work(run: Run, name: str) -> None:
    """Hold the place for a second; leaves a file with when and whether it was locked."""
    began = time.time()
    time.sleep(1.0)
    (run.out / f"{name}.txt").write_text(f"{began} {time.time()} {int(is_locked(run))}")


def step(name: str) -> dg.OpDefinition:
    @dg.op(name=name)
    def made(study: StudyResource) -> None:
        work(study.open(), name)

    return made


def steps_of(study: str, out: str) -> dg.JobDefinition:
    """What each process builds anew from the study file and the folder."""

    @dg.job(
        resource_defs={"study": StudyResource(study=study, out=out)},
        executor_def=dg.multiprocess_executor.configured({"max_concurrent": len(STEPS)}),
    )
    def steps() -> None:
        for name in STEPS:
            step(name)()

    return steps


def told(folder: Path) -> list[tuple[float, float, bool]]:
    """When each step began and ended its work, in that order, and whether the place was locked."""
    texts = [(folder / f"{name}.txt").read_text().split() for name in STEPS]
    return sorted((float(began), float(ended), locked == "1") for began, ended, locked in texts)
