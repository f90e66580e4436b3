"""The transfer workflow: forecasts over finished cells, then their measures and the report.

`SGPU_STUDY=STUDY.yaml SGPU_OUT=DIR dagster dev -m pipelines.transfer` shows and runs the same graph.
"""

# No postponed annotations here: Dagster reads the types of `context` at definition.

import hashlib
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from pipelines.assets import RETRY
from pipelines.open_runs import OpenRuns
from sgpu.errors import InterruptedRunError, SgpuError, StageError, UsageError
from sgpu.models.weights import cache_dir
from sgpu.runtime.lock import run_lock
from sgpu.runtime.progress import Progress
from sgpu.runtime.run import check_writable
from sgpu.runtime.session import ray_session
from sgpu.stages.transfer import TransferRun
from sgpu.storage.location import Location, only_ours
from sgpu.study.transfer import TransferStudy, load_transfer_study

_runs = OpenRuns[TransferRun]()


class TransferResource(dg.ConfigurableResource):
    """A transfer study's file with its overrides and output folder, as Dagster configuration."""

    study: str
    out: str
    overrides: list[str] = Field(default_factory=list)

    def open(self) -> TransferRun:
        """The run of this study; in a process that the command line did not start it is locked first."""
        return _runs.open(Location.of(self.out), self._opened)

    def _opened(self) -> tuple[TransferRun, Path]:
        run = open_transfer_run(load_transfer_study(Path(self.study), self.overrides), self.out)
        return run, run.out

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Let others have the folder."""
        _runs.close(Location.of(self.out))


@dg.asset(retry_policy=RETRY, group_name="transfer", kinds={"pytorch", "deltalake"})
def transfer_forecasts(study: TransferResource) -> dg.MaterializeResult:
    """What every classifier of every design says of its target; rows are guarded against leaks."""
    from sgpu.stages.transfer import transfer

    run = study.open()
    published = _attempt(run, lambda: transfer(run))
    return dg.MaterializeResult(metadata={"rows": sum(table.rows for table in published)})


@dg.asset(deps=[transfer_forecasts], retry_policy=RETRY, group_name="transfer", kinds={"mlflow"})
def transfer_report(study: TransferResource) -> dg.MaterializeResult:
    """Metrics, paired tests, curves and recalibration; the page, and the study in MLflow."""
    from sgpu.report.transfer.summary import summarise_transfer

    run = study.open()
    page = _attempt(run, lambda: summarise_transfer(run))
    return dg.MaterializeResult(metadata={"page": dg.MetadataValue.path(str(page))})


ASSETS = [transfer_forecasts, transfer_report]


def transfer_study(
    study_file: Path, out: Path | str | None, overrides: Sequence[str], private: bool = False
) -> Location:
    """Run a transfer study from its file, and return its report page.

    Raises UsageError before any work for a study that cannot run, LeakageError if a row of a target reached
    a fit for it.
    """
    run = open_transfer_run(load_transfer_study(study_file, overrides), out)
    assert run.n and run.cells  # read once here: a folder that is not finished is a usage error
    if private:
        only_ours(run.root)
        run.root.make_private()
    resource = TransferResource(study=str(study_file), out=str(run.root), overrides=list(overrides))
    try:
        with run_lock(run.root, run.out):
            _runs.register(run.root, run)
            if run.study.fitters:
                with ray_session():
                    _materialise(run, resource)
            else:
                _materialise(run, resource)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            "interrupted. Finished fits are kept: the same command goes on from there."
        ) from None
    return run.root / "report" / "index.html"


def open_transfer_run(study: TransferStudy, out: Path | str | None) -> TransferRun:
    """The run of a transfer study that keeps its results in ``out``, by default runs/<study name>.

    Raises UsageError before any work if they could not be kept there, or would lie over a run that is read.
    """
    root = Location.of(out or Path("runs") / study.name)
    check_writable(root)
    if any(Location.of(source.path) == root for source in study.runs):
        raise UsageError(f"{root} is one of the study's `runs`; give another --out")
    if root.is_local:
        return TransferRun(study, root.local, Progress())
    # Fits are made here and not kept: what they say is, and another machine makes them again.
    name = hashlib.sha256(f"{socket.gethostname()} {root}".encode()).hexdigest()[:16]
    working = cache_dir() / "working" / name
    check_writable(working)
    return TransferRun(study, working, Progress(), kept_in=root)


def _materialise(run: TransferRun, resource: TransferResource) -> None:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        instance = dg.DagsterInstance.get() if os.environ.get("DAGSTER_HOME") else ephemeral
        result = dg.materialize(
            ASSETS,
            resources={"study": resource},
            instance=instance,
            raise_on_error=False,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
    if run.interrupted:
        raise KeyboardInterrupt
    if not result.success:
        raise run.failure or _unexpected(result, run.out)


def _attempt(run: TransferRun, work: Callable[[], Any]) -> Any:
    """Do the work; a deliberate error ends the asset at once and is kept for the command line."""
    try:
        return work()
    except SgpuError as error:
        run.failure = error
        raise dg.Failure(description=str(error), allow_retries=isinstance(error, StageError)) from error
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as interrupt:
        run.interrupted = True
        raise dg.Failure(description="interrupted", allow_retries=False) from interrupt


def _unexpected(result: dg.ExecuteInProcessResult, out: Path) -> SgpuError:
    for event in result.all_events:
        if event.is_step_failure and event.step_failure_data.error:
            log = out / "error.log"
            log.write_text(event.step_failure_data.error.to_string())
            return StageError(
                f"{event.step_key} failed by a fault of SGPU or of something beneath it; the trace is in "
                f"{log}. Finished fits are kept."
            )
    return StageError("the transfer study did not succeed")


defs = dg.Definitions(
    assets=ASSETS,
    resources={
        "study": TransferResource(
            study=os.environ.get("SGPU_STUDY", str(Path(__file__).parent / "studies" / "transfer.yaml")),
            out=os.environ.get("SGPU_OUT", "runs/transfer"),
        )
    },
)
