"""The transfer workflow: forecasts over finished cells, then their measures and the report.

`SGPU_STUDY=STUDY.yaml SGPU_OUT=DIR dagster dev -m pipelines.transfer` shows and runs the same graph.
"""

# No postponed annotations here: Dagster reads the types of `context` at definition.

import os
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from pipelines.assets import RETRY, RunResource, attempt, report_asset
from pipelines.benchmark import traced
from sgpu.errors import UsageError, resumable
from sgpu.runtime.lock import run_lock
from sgpu.runtime.progress import Progress
from sgpu.runtime.session import named_cluster, one_ray_session
from sgpu.stages.run import working_folder
from sgpu.stages.transfer import publish_forecasts
from sgpu.stages.transfer_sources import TransferRun
from sgpu.storage.location import Location, only_ours
from sgpu.study.transfer import TransferStudy, load_transfer_study


class TransferResource(RunResource):
    """A transfer study's file with its overrides and output folder, as Dagster configuration."""

    def new_run(self) -> TransferRun:
        study = load_transfer_study(Path(self.study), self.overrides)
        return open_transfer_run(study, self.out, self.address)


@dg.asset(retry_policy=RETRY, group_name="transfer", kinds={"pytorch", "deltalake"})
def transfer_forecasts(study: TransferResource) -> dg.MaterializeResult:
    """What every classifier of every design says of its target; rows are guarded against leaks."""
    run = study.open()
    published = attempt(lambda: publish_forecasts(run))
    return dg.MaterializeResult(metadata={"rows": sum(table.rows for table in published)})


@dg.asset(deps=[transfer_forecasts], retry_policy=RETRY, group_name="transfer", kinds={"mlflow"})
def transfer_report(study: TransferResource) -> dg.MaterializeResult:
    """Metrics, paired tests, curves and recalibration; the page, and the study in MLflow."""
    from sgpu.report.transfer.summary import summarise_transfer

    run = study.open()
    page = attempt(lambda: summarise_transfer(run))
    return dg.MaterializeResult(metadata={"page": dg.MetadataValue.path(str(page))})


ASSETS = [transfer_forecasts, transfer_report]


def transfer_study(
    study_file: Path,
    out: Path | str | None,
    overrides: Sequence[str],
    private: bool = False,
    address: str | None = None,
) -> Location:
    """Run a transfer study from its file, and return its report page.

    Raises UsageError before any work for a study that cannot run, LeakageError if a row of a target reached
    a fit for it.
    """
    run = open_transfer_run(load_transfer_study(study_file, overrides), out, address)
    assert run.n and run.cells  # read once here: a folder that is not finished is a usage error
    if private:
        only_ours(run.root)
        run.root.make_private()
    from sgpu.report.transfer.summary import summarise_transfer

    ray = one_ray_session(address)
    with resumable("Finished fits are kept"), run_lock(run.root, run.out), traced(run, "fits"), ray:
        published = publish_forecasts(run)
        page = summarise_transfer(run)
    if os.environ.get("DAGSTER_HOME"):
        rows = sum(table.rows for table in published)
        with dg.DagsterInstance.get() as instance:
            report_asset(instance, "transfer_forecasts", [], {"rows": rows})
            report_asset(instance, "transfer_report", [], {"page": page})
    return run.root / "report" / "index.html"


def open_transfer_run(
    study: TransferStudy, out: Path | str | None, address: str | None = None
) -> TransferRun:
    """The run of a transfer study that keeps its results in ``out``, by default runs/<study name>.

    Raises UsageError before any work if they could not be kept there, or would lie over a run that is read.
    """
    root = Location.of(out or Path("runs") / study.name)
    if any(Location.of(source.path) == root for source in study.runs):
        raise UsageError(f"{root} is one of the study's `runs`; give another --out")
    return TransferRun(study, working_folder(root), Progress(), root, address=named_cluster(address))


defs = dg.Definitions(
    assets=ASSETS,
    resources={
        "study": TransferResource(
            study=os.environ.get("SGPU_STUDY", str(Path(__file__).parent / "studies" / "transfer.yaml")),
            out=os.environ.get("SGPU_OUT", "runs/transfer"),
        )
    },
)
