"""What MLflow keeps of a finished study."""

from __future__ import annotations

from pathlib import Path

from sgpu.report.data import ReportData
from sgpu.stages.cell_frame import cell_inputs
from sgpu.stages.fit import fit_of
from sgpu.stages.fit_rows import GLOBAL
from sgpu.stages.measure import provenance
from sgpu.stages.run import Run
from sgpu.stages.study_frames import cell_table
from sgpu.store import fingerprint
from sgpu.study import Cell
from sgpu.tracking import StudyRun, TableVersion

RECORDED = ".recorded"  # what of the study is there already


def record(run: Run, page: Path, data: ReportData) -> None:
    """Keep the study, its cells, its report and its models in MLflow, unless these results are there."""
    study = run.study
    params = study.model_dump(mode="json", exclude={"resources", "tracking"})
    # The same results in the same store are recorded once, however often the study is run.
    key = fingerprint(
        {
            "params": params,
            "store": study.tracking.mlflow,
            "metrics": [cell_table(run, "metrics", cell).fingerprint for cell in study.cells()],
        }
    )
    recorded = run.out / RECORDED
    if recorded.is_file() and recorded.read_text() == key:
        return
    code = str(data.run_info.get("code_version"))
    with run.tracker.study(study.name, params, {"code_version": code}) as parent:
        for cell in study.cells():
            _track_cell(run, parent, cell)
        if (pooled := fit_of(run, study.cells()[0], GLOBAL)) and pooled.folder:
            n = cell_inputs(run, study.cells()[0]).n
            run.tracker.register_fit(
                pooled.folder, f"sgpu-global-{study.name}", n_answers=n, alias=study.tracking.alias,
                run_id=parent.run_id,
            )  # fmt: skip
        parent.log_report(page.parent)
        for name in ("metrics.csv", "metrics.parquet", "run.json"):
            parent.log_artifact(run.out / name)
    recorded.write_text(key)


def _track_cell(run: Run, parent: StudyRun, cell: Cell) -> None:
    inputs = cell_inputs(run, cell)
    fit = fit_of(run, cell)
    run_id = parent.log_cell(
        cell.model,
        cell.dataset,
        settings=provenance(run, cell, inputs),
        metrics=cell_table(run, "metrics", cell).read().to_pylist(),
        inputs=[
            TableVersion(t.table, str(run.store.table_folder(t.table)), t.version, t.fingerprint, t.rows)
            for t in inputs.tables
        ],
        artifacts=[fit.folder] if fit and fit.folder else [],
    )
    if fit and fit.folder:
        run.tracker.register_fit(
            fit.folder,
            f"sgpu-{cell.model}-{cell.dataset}",
            n_answers=inputs.n,
            alias=run.study.tracking.alias,
            run_id=run_id,
        )
