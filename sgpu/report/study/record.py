"""What MLflow keeps of a finished study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sgpu.report.study.data import ReportData
from sgpu.report.study.study_frames import cell_table
from sgpu.stages.cell_frame import cell_inputs, rows_of
from sgpu.stages.evaluate import provenance
from sgpu.stages.fit import Fit, fit_of
from sgpu.stages.fit_rows import GLOBAL
from sgpu.stages.run import Execution, Run
from sgpu.storage.store import Published, Store, fingerprint
from sgpu.study.benchmark import Cell, Study
from sgpu.tracking import store_address
from sgpu.visible import masked, without_credentials

if TYPE_CHECKING:
    from sgpu.tracking.runs import MlflowStudyRun, MlflowTracker

RECORDED = ".recorded"  # what of the study is there already
# Of a cell's hundreds of numbers, those that MLflow shows: several of the study's own method and, so that
# methods can be compared there, one of each. The cell's file has all.
SHOWN = ("auroc", "auarc", "ece", "brier", "accuracy")
COMPARED = "auroc"


def record(run: Run, page: Path, data: ReportData) -> None:
    """Keep the study, its cells, its report and its models in MLflow, unless these results are there."""
    study, code = run.study, str(data.run_info.get("code_version"))
    files = ("metrics.csv", "metrics.parquet", "run.json")
    metrics = [cell_table(run, "metrics", cell).fingerprint for cell in study.cells()]
    with recorded_once(run, page, files, settings_used(study), code, metrics=metrics) as parent:
        if parent is None or (tracker := run.tracker) is None:
            return
        for cell in study.cells():
            _track_cell(run, tracker, parent, cell)
        first = study.cells()[0]
        pooled, n_answers = fit_of(run, first, GLOBAL), cell_inputs(run, first).n
        _register(run, tracker, pooled, f"sgpu-global-{study.name}", n_answers, parent.run_id)
    if (store := store_address(study.tracking.mlflow)) != "none":
        run.progress.say(f"recorded in MLflow: {without_credentials(store)}")


@contextmanager
def recorded_once(
    run: Execution[Any], page: Path, files: Iterable[str], params: dict[str, Any], code: str, **results: Any
) -> Iterator[MlflowStudyRun | None]:
    """MLflow's run of a study, which its report and ``files`` are put to at the end; None if it is there, or
    nothing is tracked.

    The same ``params`` and ``results`` in the same store are recorded once, however often the study is run.
    """
    store = store_address(run.study.tracking.mlflow)
    key = fingerprint({"params": params, "store": masked(store), **results})
    recorded = run.out / RECORDED
    if recorded.is_file() and recorded.read_text() == key:
        yield None
        return
    if run.tracker is None:
        recorded.write_text(key)
        yield None
        return
    with run.tracker.study(run.study.name, params, {"code_version": code}) as parent:
        yield parent
        parent.log_report(page.parent)
        for name in files:
            parent.log_artifact(run.out / name)
    recorded.write_text(key)


def table_versions(store: Store, tables: Iterable[Published]) -> dict[str, Published]:
    """What a cell was made from, for MLflow's inputs."""
    return {str(store.table_folder(table.table)): table for table in tables}


def settings_used(study: Study) -> dict[str, Any]:
    """The study as it ran, for MLflow's parameters.

    Each data set stands under its name, with the prompt, length and judge that were used for it: those that
    the study names are only what data sets begin with.
    """
    params = study.model_dump(mode="json", exclude={"resources", "tracking", "sampling", "judge", "datasets"})
    params["datasets"] = {spec.name: spec.model_dump(mode="json") for spec in study.datasets}
    for name, used in params["datasets"].items():
        used["judge"] = study.judge_of(name).model_dump(mode="json")
    return masked(params)


def shown_metrics(rows: Sequence[Mapping[str, Any]], method: str) -> list[dict[str, Any]]:
    """Return the rows of a metrics table that MLflow shows as numbers, without their intervals."""
    return [
        {"metric": row["metric"], "method": row["method"], "value": row["value"]}
        for row in rows
        if row["metric"] == COMPARED or (row["method"] == method and row["metric"] in SHOWN)
    ]


def _track_cell(run: Run, tracker: MlflowTracker, parent: MlflowStudyRun, cell: Cell) -> None:
    inputs = cell_inputs(run, cell)
    fit = fit_of(run, cell)
    metrics = rows_of(cell_table(run, "metrics", cell))
    with TemporaryDirectory(prefix="sgpu-metrics-") as scratch:
        table = Path(scratch) / "metrics.csv"
        metrics.write_csv(table)
        run_id = parent.log_cell(
            cell.model,
            cell.dataset,
            settings=provenance(run, cell, inputs),
            metrics=shown_metrics(metrics.to_dicts(), run.study.primary_method),
            inputs=table_versions(run.store, inputs.tables),
            artifacts=[table, *([fit.folder] if fit and fit.folder else [])],
        )
    _register(run, tracker, fit, f"sgpu-{cell.model}-{cell.dataset}", inputs.n, run_id)


def _register(
    run: Run, tracker: MlflowTracker, fit: Fit | None, name: str, n_answers: int, run_id: str
) -> None:
    """Keep a classifier, if there is one, as a version of the model of this name."""
    if fit and fit.folder:
        alias = run.study.tracking.alias
        tracker.register_fit(fit.folder, name, n_answers=n_answers, alias=alias, run_id=run_id)
