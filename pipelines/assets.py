"""Dagster's side of the workflows: assets that open the run, try their work and say what they have published.

Those of a benchmark are made from `pipelines.study_assets.STUDY_ASSETS`.
"""

# No postponed annotations here: Dagster reads the types of `context` at definition.

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from pipelines.study_assets import CHECKS, STUDY_ASSETS, AssetCheck, Checked, Made, StudyAsset
from sgpu.errors import GivenUpError, SgpuError, StageError
from sgpu.plan.plan import planned_pace
from sgpu.runtime.lock import run_lock
from sgpu.runtime.stage import Outcome
from sgpu.stages.preflight import check_study
from sgpu.stages.run import Run, open_run
from sgpu.stages.transfer_sources import TransferRun
from sgpu.storage.location import Location
from sgpu.storage.store import fingerprint
from sgpu.study.benchmark import Cell, Study, load_study

# Deliberate errors are answered by a person, not by trying again; anything else may be a passing fault.
RETRY = dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL)

# The runs that steps of this process work on, so that they share one, and the locks that it has taken.
_runs: dict[Location, Run | TransferRun] = {}
_locks: dict[Location, ExitStack] = {}


class RunResource(dg.ConfigurableResource):
    """How assets get at the study that is being run: its file with overrides, output folder, Ray address.

    The command line takes the lock of a run itself. Dagster has no such moment: a step may have a process of
    its own, and steps of one run, of two runs or of a backfill may want the same folder at once. So a step
    that opens a run takes its lock, waiting for whoever has it, and gives it back when Dagster lets go of the
    resource: at the end of the step, or of the run where all steps share a process. Steps of one folder thus
    take turns, and a command that comes between two of them goes first.
    """

    study: str
    out: str
    overrides: list[str] = Field(default_factory=list)
    address: str | None = None

    def open(self) -> Any:
        """The run of this study, which is locked first."""
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

    def new_run(self) -> Run:
        study = load_study(Path(self.study), self.overrides)
        check_study(study, address=self.address)
        run = open_run(study, self.out, self.address)
        run.pace = planned_pace(study)
        return run


def attempt(work: Callable[[], Any]) -> Any:
    """Do the work; a deliberate error ends the asset at once."""
    try:
        return work()
    except SgpuError as error:
        retry = isinstance(error, StageError) and not isinstance(error, GivenUpError)
        raise dg.Failure(description=str(error), allow_retries=retry) from error
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as interrupt:
        # Dagster would try an interrupted asset again.
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


def _materialised_together(made: Sequence[Made]) -> dg.MaterializeResult:
    """Return what Dagster keeps of partitions made together: of several, one data version for all."""
    results = [materialised(one) for one in made]
    if len(results) == 1:
        return results[0]
    versions = [result.data_version.value for result in results if result.data_version]
    version = dg.DataVersion(fingerprint({"versions": versions}))
    return dg.MaterializeResult(metadata={"partitions": len(results)}, data_version=version)


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
        name=asset.name,
        description=asset.description,
        partitions_def=partitions,
        deps=[
            *(
                dg.AssetDep(n, partition_mapping=per_dataset if n == "questions" else None)
                for n in asset.reads
            ),
            *(dg.AssetDep(name, partition_mapping=dg.AllPartitionMapping()) for name in asset.reads_all),
        ],
        # Cells that a backfill asks for share the engines of one run.
        backfill_policy=dg.BackfillPolicy.single_run() if partitions else None,
        retry_policy=RETRY,
        group_name=asset.group,
        kinds=set(asset.kinds),
    )
    def made(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        run = study.open()
        parts = [_part(key) for key in context.partition_keys] if partitions else [[]]
        return attempt(lambda: _materialised_together(asset.make(run, parts)))

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
        run, keys = study.open(), context.op_execution_context.partition_keys
        found = {key: function(run, *_part(key)) for key in keys}
        failed = {key: numbers for key, (passed, numbers) in found.items() if not passed}
        worst = next(iter(failed.values())) if failed else found[keys[0]][1]
        return dg.AssetCheckResult(
            passed=not failed, severity=_severity(blocking), metadata={**worst, "failed": list(failed)}
        )

    return check


def report_asset(
    instance: dg.DagsterInstance,
    name: str,
    part: Sequence[Any],
    made: Made,
    checks: Sequence[AssetCheck] = (),
) -> None:
    """Tell an instance of Dagster what a command has made, as if Dagster had run the asset."""
    result = materialised(made)
    tags = {"dagster/data_version": result.data_version.value} if result.data_version else None
    partition = _key(*part) if part else None
    events: list[dg.AssetMaterialization | dg.AssetCheckEvaluation] = [
        dg.AssetMaterialization(name, metadata=result.metadata, partition=partition, tags=tags)
    ]
    events += [
        dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(name),
            check_name=check.name,
            passed=check.passed,
            metadata={key: dg.MetadataValue.float(float(value)) for key, value in check.numbers.items()},
            severity=_severity(check.blocking),
        )
        for check in checks
    ]
    for event in events:
        instance.report_runless_asset_event(event)


def _key(part: Cell | str) -> str:
    if isinstance(part, Cell):
        return dg.MultiPartitionKey({"model": part.model, "dataset": part.dataset})
    return part


def _severity(blocking: bool) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if blocking else dg.AssetCheckSeverity.WARN
