"""Dagster's side of the workflows: assets that open the run, try their work and say what they have published.

Those of a benchmark are made from `pipelines.study_assets.STUDY_ASSETS`.
"""

# No postponed annotations here: Dagster reads the types of `context` at definition.

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
from pydantic import Field

from pipelines.study_assets import STUDY_ASSETS, Made, StudyAsset
from sgpu.errors import GivenUpError, SgpuError, StageError
from sgpu.report.study.questions import unlabelled
from sgpu.runtime.lock import run_lock
from sgpu.runtime.stage import Outcome
from sgpu.stages.cell_frame import published_labels, published_spectra
from sgpu.stages.preflight import check_study
from sgpu.stages.run import Run, open_run
from sgpu.stages.transfer import TransferRun
from sgpu.storage.location import Location
from sgpu.study.benchmark import Cell, Study, load_study

# Deliberate errors are answered by a person, not by trying again; anything else may be a passing fault.
RETRY = dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL)

# Eigenvalues come from a float32 Gram matrix; their sum is N to about N times its rounding error.
EIGENVALUE_SUM_TOLERANCE = 1e-3
Checked = tuple[bool, dict[str, float]]  # whether a check has passed, and its numbers

# The runs that this process works on, so that all assets share one run, and the locks that it has taken.
_runs: dict[Location, Run | TransferRun] = {}
_locks: dict[Location, ExitStack] = {}


def register(run: Run | TransferRun) -> None:
    """Let assets of this process use a run that the command line has already opened and locked."""
    _runs[run.root] = run


class RunResource(dg.ConfigurableResource):
    """How assets get at the study that is being run: its file with overrides, and its output folder.

    The command line takes the lock of a run itself and registers it. Dagster has no such moment: a step may
    have a process of its own, and steps of one run, of two runs or of a backfill may want the same folder at
    once. So a step that opens a run takes its lock, waiting for whoever has it, and gives it back when
    Dagster lets go of the resource: at the end of the step, or of the run where all steps share a process.
    Steps of one folder thus take turns, as the command line makes them do anyway, and a command that comes
    between two of them goes first.
    """

    study: str
    out: str
    overrides: list[str] = Field(default_factory=list)

    def open(self) -> Any:
        """The run of this study; in a process that the command line did not start it is locked first."""
        root = Location.of(self.out)
        if root not in _runs:
            run, lock = self.new_run(), ExitStack()
            lock.enter_context(run_lock(root, run.out, wait=dg.get_dagster_logger().warning))
            _locks[root], _runs[root] = lock, run
        return _runs[root]

    def new_run(self) -> Run | TransferRun:
        raise NotImplementedError

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Let others have the folder."""
        root = Location.of(self.out)
        if lock := _locks.pop(root, None):
            del _runs[root]
            lock.close()


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


def materialised(made: Made) -> dg.MaterializeResult:
    """What Dagster keeps of what was made; of a published table the fingerprint is the data version."""
    published = made.published if isinstance(made, Outcome) else made
    if published is None:
        return dg.MaterializeResult(metadata={"rows": 0})
    if isinstance(published, Mapping):
        paths = {
            name: dg.MetadataValue.path(str(location))
            for name, location in published.items()
            if isinstance(location, Location)
        }
        return dg.MaterializeResult(metadata={**published, **paths})
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


def eigenvalue_sum(run: Run, cell: Cell) -> Checked:
    """Every spectrum sums to its number of answers."""
    rows = published_spectra(run, cell).read(["status", "n", "eigenvalues"]).to_pylist()
    sums = ((float(np.sum(row["eigenvalues"])), row["n"]) for row in rows if row["status"] == "ok")
    worst = max((abs(total - n) for total, n in sums), default=0.0)
    return worst <= EIGENVALUE_SUM_TOLERANCE, {"worst_difference": worst, "bound": EIGENVALUE_SUM_TOLERANCE}


def labels_known(run: Run, cell: Cell) -> Checked:
    """Labels are missing for no larger share than the study allows."""
    rows = published_labels(run, cell).read(["label"])["label"]
    share = rows.null_count / max(1, len(rows))
    bound = run.study.bounds.missing_labels
    return share <= bound or unlabelled(run, cell), {"missing_share": share, "bound": bound}


def rows_answered(run: Run, cell: Cell) -> Checked:
    """Rows in quarantine are no larger share than the study allows."""
    published = run.responses(cell)
    failed = published.read(["status"])["status"].to_pylist().count("failed")
    share, bound = failed / max(1, published.rows), run.study.bounds.quarantined
    return share <= bound, {"quarantined": failed, "share": share, "bound": bound}


# Each with the asset that it looks at; a blocking one stops what is downstream, others warn.
CHECKS = (
    (eigenvalue_sum, "spectra", True),
    (labels_known, "labels", False),
    (rows_answered, "responses", False),
)


def build(study: Study) -> tuple[list[dg.AssetsDefinition], list[dg.AssetChecksDefinition]]:
    """The assets and checks of a study. Its models and data sets are the partitions."""
    cells = study.cells()
    datasets = dg.StaticPartitionsDefinition(list(dict.fromkeys(cell.dataset for cell in cells)))
    models = dg.StaticPartitionsDefinition(list(dict.fromkeys(cell.model for cell in cells)))
    pairs = dg.MultiPartitionsDefinition({"dataset": datasets, "model": models})
    partitions = {"dataset": datasets, "cell": pairs, "study": None}
    with warnings.catch_warnings():
        # Checks on partitions are in preview: all that we use of them is that they run with their asset.
        for category in (dg.PreviewWarning, dg.BetaWarning):
            warnings.simplefilter("ignore", category)
        return (
            [_asset(asset, partitions[asset.of]) for asset in STUDY_ASSETS],
            [_check(*check, pairs) for check in CHECKS],
        )


def _part(key: Any) -> list[Any]:
    """What an asset of a partition works on, beside the run: a data set's name, or a cell."""
    keys = getattr(key, "keys_by_dimension", None)
    return [Cell(keys["model"], keys["dataset"]) if keys else str(key)]


def _asset(asset: StudyAsset, partitions: dg.PartitionsDefinition | None) -> dg.AssetsDefinition:
    per_dataset = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name="dataset")

    @dg.asset(
        name=asset.work.__name__,
        description=asset.work.__doc__,
        partitions_def=partitions,
        deps=[
            *(
                dg.AssetDep(n, partition_mapping=per_dataset if n == "questions" else None)
                for n in asset.reads
            ),
            *(dg.AssetDep(name, partition_mapping=dg.AllPartitionMapping()) for name in asset.reads_all),
        ],
        retry_policy=RETRY,
        group_name=asset.group,
        kinds=set(asset.kinds),
    )
    def made(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        run = study.open()
        part = _part(context.partition_key) if partitions else []
        return attempt(run, lambda: materialised(asset.work(run, *part)))

    return made


def _check(
    function: Callable[[Run, Cell], Checked],
    asset: str,
    blocking: bool,
    pairs: dg.MultiPartitionsDefinition,
) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=asset,
        name=function.__name__,
        blocking=blocking,
        description=function.__doc__,
        partitions_def=pairs,
    )
    def check(context: dg.AssetCheckExecutionContext, study: StudyResource) -> dg.AssetCheckResult:
        passed, numbers = function(study.open(), *_part(context.partition_key))
        severity = dg.AssetCheckSeverity.ERROR if blocking else dg.AssetCheckSeverity.WARN
        return dg.AssetCheckResult(passed=passed, severity=severity, metadata=numbers)

    return check


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
