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

from pipelines import benchmark
from pipelines.evaluation import write_report
from pipelines.on_head import run_on_head
from pipelines.study_resource import StudyResource, register
from sgpu.errors import InterruptedRunError, SgpuError, StageError, UsageError
from sgpu.report.study.data import StageSummary
from sgpu.report.study.unlabelled import check_labels
from sgpu.runtime.address import named_cluster, over_client
from sgpu.runtime.lock import run_lock
from sgpu.runtime.run import Run, check_quarantine, open_run
from sgpu.runtime.session import one_ray_session
from sgpu.stages.preflight import check_study
from sgpu.stages.servers import check_servers
from sgpu.storage.location import Location, only_ours
from sgpu.study.benchmark import Cell, Study, load_study

PER_CELL = ("responses", "labels", "judge_agreement", "spectra", "entailment", "hidden_states")
EVALUATION = ("predictions", "metrics", "embeddings")


def benchmark_study(
    study_file: Path,
    out: Path | str | None,
    overrides: Sequence[str],
    address: str | None,
    private: bool = False,
) -> Location:
    """Run a study from its file, and return its report page.

    Raises UsageError before any work for a study that cannot run, QuarantineError after all of it if more
    rows were quarantined than the study allows.
    """
    address = named_cluster(address)
    if address and over_client(address):
        with _terminable():
            command = _command(study_file, out, overrides) + ["--private"] * private
            return Location.of(run_on_head(command, address))
    study = load_study(study_file, overrides)
    check_study(study, address=address)
    run = open_run(study, out, address)
    if private:
        only_ours(run.root)
        run.root.make_private()
    check_servers(run)
    try:
        with run_lock(run.root, run.out) as check, _terminable() as signalled:

            def stopping() -> bool:
                check()
                return signalled()

            run_benchmark(run, study_file, overrides, stopping)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            "interrupted. What is finished is kept: the same command goes on from there."
        ) from None
    check_quarantine(run)
    check_labels(run)
    return run.root / "report" / "index.html"


def _command(study_file: Path, out: Path | str | None, overrides: Sequence[str]) -> list[str]:
    words = ["benchmark", str(study_file), *(["--out", str(out)] if out else [])]
    return words + [word for change in overrides for word in ("--set", change)]


def report_study(folder: Path | str) -> Location:
    """Render the report of a finished study anew from its tables; returns the page.

    Raises UsageError for a folder that holds no finished study.
    """
    root = Location.of(folder)
    facts = root / "run.json"
    try:
        kept = json.loads(facts.read_bytes())
        study = Study.model_validate(kept["study"])
        stages = [StageSummary(**stage) for stage in kept["stages"]]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{folder} does not hold a finished study ({facts.name}: {error}); run `sgpu benchmark` first"
        ) from None
    return write_report(open_run(study, root), stages)


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
        study=str(study_file), out=str(run.root), overrides=list(overrides), address=run.address
    )
    cells = run.study.cells()
    with one_ray_session(run.address), dg.DagsterInstance.ephemeral() as ephemeral:
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
