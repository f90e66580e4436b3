"""What exists goes on: over a whole run by the code before the modules were moved, the command does nothing.

The weights of the SAPLMA probe (1.5 MB) are not stored: where nothing is due, nothing reads them.
"""

from __future__ import annotations

import re
import shutil

from tests.golden.case_run import DATA, CaseRun, NotAsExpected
from tests.golden.stored import stages, write_csv

TOLERANCE = 0.0
FIT = re.compile(r"^fit +(?P<cell>.+?) +(?P<rows>\d+) rows +(?P<said>.*)$", re.MULTILINE)
UNCHANGED = "unchanged, not run again"


def produce(run: CaseRun) -> None:
    given, folder = DATA / "benchmark" / "given", run.work / "run"
    shutil.copytree(given / "run", folder)
    printed = run.sgpu("benchmark", given / "study.yaml", "--out", folder)
    fits = [found.groupdict() for found in FIT.finditer(printed)]
    made = list(stages(folder))
    again = [f"{stage['name']} {stage['cell']}" for stage in made if not stage["reused"]]
    again += [f"fit {fit['cell']}: {fit['said']}" for fit in fits if fit["said"] != UNCHANGED]
    if again or not fits:
        raise NotAsExpected(
            f"a finished run was not taken as finished: {again or 'no line about fits'}\n{printed}"
        )
    write_csv(made, run.out / "stages.csv")
    write_csv(fits, run.out / "fits.csv")
