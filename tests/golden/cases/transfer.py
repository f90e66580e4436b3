"""A transfer study of every design, over the golden run of the benchmark and constructed cells.

The cells in `given/text` (two models, two data sets) and `given/vision` (one) are those of
`bench.constructed_cells.write_run` with six answers.
"""

from __future__ import annotations

import shutil

from tests.golden.case_run import DATA, CaseRun
from tests.golden.cases.benchmark import copy_tables
from tests.golden.stored import rows, write_csv, write_measures, write_schemas

TOLERANCE = 1e-5  # classifiers are fitted


def produce(run: CaseRun) -> None:
    shutil.copytree(run.given, run.work, dirs_exist_ok=True)
    shutil.copytree(DATA / "benchmark" / "given" / "run", run.work / "quickstart")
    folder = run.work / "run"
    run.sgpu("transfer", "study.yaml", "--out", folder)
    write_schemas(folder / "tables", run.out / "schemas.json")
    forecasts = rows(folder / "tables" / "transfer_forecasts", without=["fit_id"])
    tested = [row for row in forecasts if row["split"] == "test" and row["axis"] is None]
    write_csv(tested, run.out / "forecasts.csv")
    write_measures(folder / "metrics.csv", run.out)
    write_measures(folder / "comparisons.csv", run.out)
    for name in ("curve", "calibration"):
        shutil.copyfile(folder / f"{name}.csv", run.out / f"{name}.csv")
    copy_tables(folder / "report", run.out / "report")
