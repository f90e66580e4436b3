"""What the assets of all studies do alike: open the run, try their work, say what they have published."""

# No postponed annotations here: Dagster reads the types of `context` at definition.

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from sgpu.errors import GivenUpError, SgpuError, StageError
from sgpu.runtime.lock import OpenRuns
from sgpu.runtime.run import Run, open_run
from sgpu.runtime.stage import Outcome
from sgpu.stages.preflight import check_study
from sgpu.stages.transfer import TransferRun
from sgpu.storage.location import Location
from sgpu.storage.store import Published
from sgpu.study.benchmark import load_study

# Deliberate errors are answered by a person, not by trying again; anything else may be a passing fault.
RETRY = dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL)

_runs = OpenRuns[Run | TransferRun](lambda text: dg.get_dagster_logger().warning(text))


def register(run: Run | TransferRun) -> None:
    """Let assets of this process use a run that the command line has already opened and locked."""
    _runs.register(run.root, run)


class RunResource(dg.ConfigurableResource):
    """How assets get at the study that is being run: its file with overrides, and its output folder."""

    study: str
    out: str
    overrides: list[str] = Field(default_factory=list)

    def open(self) -> Any:
        """The run of this study; in a process that the command line did not start it is locked first."""
        return _runs.open(Location.of(self.out), self.new_run)

    def new_run(self) -> Run | TransferRun:
        raise NotImplementedError

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Let others have the folder."""
        _runs.close(Location.of(self.out))


class StudyResource(RunResource):
    """A study file with its overrides, output folder and Ray address, as Dagster configuration."""

    address: str | None = None

    def new_run(self) -> Run:
        study = load_study(Path(self.study), self.overrides)
        check_study(study, address=self.address)
        return open_run(study, self.out, self.address)


def attempt(run: Run | TransferRun, work: Callable[[], Any]) -> Any:
    """Do the work; a deliberate error ends the asset at once and is kept for the command line."""
    try:
        return work()
    except SgpuError as error:
        run.failure = error
        retry = isinstance(error, StageError) and not isinstance(error, GivenUpError)
        raise dg.Failure(description=str(error), allow_retries=retry) from error
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as interrupt:
        # Dagster would try an interrupted asset again.
        run.interrupted = True
        raise dg.Failure(description="interrupted", allow_retries=False) from interrupt


def materialised(made: Outcome | Published | None) -> dg.MaterializeResult:
    """What Dagster keeps of a published table: its fingerprint is the data version.

    None stands for a stage that the study does not ask for.
    """
    published = made.published if isinstance(made, Outcome) else made
    if published is None:
        return dg.MaterializeResult(metadata={"rows": 0})
    return dg.MaterializeResult(
        metadata={
            "rows": published.rows,
            "table": published.table,
            "partition": published.partition.path,
            "delta_version": published.version,
            "states": dg.MetadataValue.json(published.manifest.get("rows_by_status", {})),
        },
        data_version=dg.DataVersion(published.fingerprint),
    )


@contextmanager
def dagster_instance() -> Iterator[dg.DagsterInstance]:
    """Where a Dagster home is configured, the run shows up there."""
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield dg.DagsterInstance.get() if os.environ.get("DAGSTER_HOME") else ephemeral


def materialise(
    run: Run | TransferRun,
    definitions: Sequence[dg.AssetsDefinition | dg.AssetChecksDefinition],
    names: Sequence[str],
    resource: RunResource,
    instance: dg.DagsterInstance,
    partition: str | dg.MultiPartitionKey | None = None,
) -> None:
    """Make the assets of these names in this process.

    Raises KeyboardInterrupt for a signal, the first deliberate error of an asset, and StageError for any
    other or if a blocking check failed.
    """
    result = dg.materialize(
        list(definitions),
        selection=dg.AssetSelection.assets(*names),
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
        raise run.failure or _unexpected(result, names, run)


def _interrupted(result: dg.ExecuteInProcessResult) -> bool:
    """Whether a signal came between two assets: Dagster reports that as a failure of the run."""
    return any(
        event.is_job_failure
        and (reason := event.job_failure_data.failure_reason)
        and reason.name == "UNEXPECTED_TERMINATION"
        for event in result.all_events
    )


def _unexpected(result: dg.ExecuteInProcessResult, names: Sequence[str], run: Run | TransferRun) -> SgpuError:
    for event in result.all_events:
        if event.is_step_failure and event.step_failure_data.error:
            error = event.step_failure_data.error
            while error.cause:
                error = error.cause
            log = run.out / "error.log"
            log.write_text(event.step_failure_data.error.to_string())
            return StageError(
                f"{event.step_key} failed: {error.message.strip()} This is a fault of SGPU or of something "
                f"beneath it; the trace is in {log}. "
                f"Finished {'fits' if isinstance(run, TransferRun) else 'stages'} are kept."
            )
    return StageError(f"{'/'.join(names)} did not succeed: a blocking check failed (see above)")
