"""Runs a whole study in this process by materialising its assets in order; no daemon is needed."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from filelock import FileLock, Timeout

from pipelines import benchmark
from pipelines.evaluation import write_report
from pipelines.study_resource import StudyResource, register
from sgpu.errors import InterruptedRunError, SgpuError, StageError, UsageError
from sgpu.report.data import StageSummary
from sgpu.stages.preflight import check_study
from sgpu.stages.progress import Progress
from sgpu.stages.run import Run, check_quarantine, check_writable
from sgpu.stages.session import one_ray_session
from sgpu.study import Cell, Study, load_study

PER_CELL = ("responses", "labels", "judge_agreement", "spectra", "entailment", "hidden_states")
EVALUATION = ("predictions", "metrics", "embeddings")


def benchmark_study(
    study_file: Path, out: Path | None, overrides: Sequence[str], address: str | None
) -> Path:
    """Run a study from its file, and return its report page.

    Raises UsageError before any work for a study that cannot run, QuarantineError after all of it if more
    rows were quarantined than the study allows.
    """
    study = load_study(study_file, overrides)
    check_study(study, address=address)
    folder = (out or Path("runs") / study.name).absolute()
    check_writable(folder)
    run = Run(study, folder, Progress(), address, tracking_root=folder if out else folder.parent)
    lock = FileLock(folder / ".lock")
    try:
        with lock.acquire(blocking=False), _terminable() as signalled:
            run_benchmark(run, study_file, overrides, signalled)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            "interrupted. What is finished is kept: the same command goes on from there."
        ) from None
    except Timeout:
        raise UsageError(
            f"another run is working in {folder}. Wait for it, or give this one another --out."
        ) from None
    check_quarantine(run)
    return folder / "report" / "index.html"


def report_study(folder: Path) -> Path:
    """Render the report of a finished study anew from its tables; returns the page.

    Raises UsageError for a folder that holds no finished study.
    """
    facts = folder / "run.json"
    try:
        kept = json.loads(facts.read_text())
        study = Study.model_validate(kept["study"])
        stages = [StageSummary(**stage) for stage in kept["stages"]]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{folder} does not hold a finished study ({facts.name}: {error}); run `sgpu benchmark` first"
        ) from None
    return write_report(Run(study, folder.absolute(), Progress(), tracking_root=folder.absolute()), stages)


@contextmanager
def _terminable() -> Iterator[Callable[[], bool]]:
    """SIGTERM, as a service manager sends it, ends a run as Ctrl-C does; gives whether either has come.

    Dagster sets handlers of its own while it works and drops a signal that comes between two assets. Python
    writes every signal to a file besides, whatever its handler makes of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    file = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def signalled() -> bool:
        try:
            return bool({signal.SIGINT, signal.SIGTERM} & set(os.read(reader, 4096)))
        except BlockingIOError:
            return False

    try:
        yield signalled
    finally:
        signal.signal(signal.SIGTERM, handler)
        signal.set_wakeup_fd(file)
        os.close(reader)
        os.close(writer)


def run_benchmark(
    run: Run, study_file: Path, overrides: Sequence[str], signalled: Callable[[], bool] = lambda: False
) -> None:
    """Materialise everything that is due; stages whose inputs have not changed do nothing.

    ``signalled`` says between the assets whether to stop, with a KeyboardInterrupt. Raises the first
    deliberate error of a stage, or StageError if a blocking check failed.
    """
    register(run)
    assets, checks = benchmark.build(run.study)
    resource = StudyResource(
        study=str(study_file), out=str(run.out), overrides=list(overrides), address=run.address
    )
    cells = run.study.cells()
    with one_ray_session(), dg.DagsterInstance.ephemeral() as ephemeral:
        # Where a Dagster home is configured, the run shows up there.
        instance = dg.DagsterInstance.get() if os.environ.get("DAGSTER_HOME") else ephemeral

        def due(names: Sequence[str], partition: str | dg.MultiPartitionKey | None = None) -> None:
            _materialise(run, [*assets, *checks], names, partition, resource, instance)
            if signalled():
                raise KeyboardInterrupt

        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            due(["questions"], dataset)
        for cell in cells:
            due(PER_CELL, _key(cell))
        due(["fits"])
        for cell in cells:
            due(EVALUATION, _key(cell))
        due(["sensitivity"])
        due(["report"])


def _key(cell: Cell) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({"model": cell.model, "dataset": cell.dataset})


def _materialise(
    run: Run,
    definitions: Sequence[dg.AssetsDefinition | dg.AssetChecksDefinition],
    names: Sequence[str],
    partition: str | dg.MultiPartitionKey | None,
    resource: StudyResource,
    instance: dg.DagsterInstance,
) -> None:
    selection = dg.AssetSelection.assets(*names)
    result = dg.materialize(
        list(definitions),
        selection=selection,
        partition_key=partition,
        resources={"study": resource},
        instance=instance,
        raise_on_error=False,
        # The stages tell a person what they do; Dagster's own event log goes to its storage.
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )
    if run.interrupted or _interrupted(result):
        raise KeyboardInterrupt
    for check in result.get_asset_check_evaluations():
        if not check.passed:
            values = ", ".join(f"{key} {value.value}" for key, value in check.metadata.items())
            run.notes.append(f"Check {check.check_name} failed for {partition}: {values}")
            run.progress.say(f"  check {check.check_name} failed on {partition}: {values}")
    if not result.success:
        raise run.failure or _unexpected(result, names, run.out)


def _interrupted(result: dg.ExecuteInProcessResult) -> bool:
    """Whether a signal came between two assets: Dagster reports that as a failure of the run."""
    return any(
        event.is_job_failure
        and (reason := event.job_failure_data.failure_reason)
        and reason.name == "UNEXPECTED_TERMINATION"
        for event in result.all_events
    )


def _unexpected(result: dg.ExecuteInProcessResult, names: Sequence[str], out: Path) -> SgpuError:
    for event in result.all_events:
        if event.is_step_failure and event.step_failure_data.error:
            error = event.step_failure_data.error
            while error.cause:
                error = error.cause
            log = out / "error.log"
            log.write_text(event.step_failure_data.error.to_string())
            return StageError(
                f"{event.step_key} failed: {error.message.strip()} This is a fault of SGPU or of something "
                f"beneath it; the trace is in {log}. Finished stages are kept."
            )
    return StageError(f"{'/'.join(names)} did not succeed: a blocking check failed (see above)")
