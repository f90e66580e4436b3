"""The encoder and what is made of its spectra without a fit, from the stored answers of the benchmark."""

from __future__ import annotations

import shutil

from tests.golden.case_run import DATA, CaseRun
from tests.golden.cases.benchmark import STORED, going_on
from tests.golden.stored import rows, write_csv

TOLERANCE = 1e-5  # an encoder runs
METHODS = ("spectral_entropy", "largest_eigenvalue", "self_consistency")


def produce(run: CaseRun) -> None:
    given, folder = DATA / "benchmark" / "given", run.work / "run"
    folder.mkdir()
    shutil.copy(given / "run" / "run.json", folder)
    for table in ("questions", "responses", "labels"):
        shutil.copytree(given / "run" / "tables" / table, folder / "tables" / table)
    changes = (f"methods=[{','.join(METHODS)}]", "sensitivity={}")
    words = [word for change in changes for word in ("--set", change)]
    run.sgpu("benchmark", given / "study.yaml", "--out", folder, *words)
    write_csv(going_on(folder, [name for name in STORED if name != "encode"]), run.out / "stages.csv")
    for table in ("spectra", "predictions"):
        write_csv(rows(folder / "tables" / table), run.out / f"{table}.csv")
