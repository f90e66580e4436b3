"""A study goes on from stored spectra, labels, entailments and hidden states to fits and the report.

`given/run` is the whole run, by the code before the modules were moved. What comes after the language model
and the encoder is removed from a copy, and the same command makes it again. No right and wrong test question
have equal spectra (six equal answers), whose rank would be decided by the last bit. Spectra have a case of
their own, `encode`: another processor's differ in the seventh digit, and fits make more of that.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.golden.case_run import CaseRun, NotAsExpected
from tests.golden.stored import rows, stages, write_csv, write_measures, write_schemas

TOLERANCE = 1e-5  # classifiers are fitted to what an encoder made
MADE_AGAIN = ("predictions", "metrics", "comparisons", "sensitivity")
STORED = ("prepare", "sample", "judge", "entail", "hidden", "encode")
TIMES = "posthoc_time"  # a table of seconds


def produce(run: CaseRun) -> None:
    folder = run.work / "run"
    shutil.copytree(run.given / "run", folder)
    for name in MADE_AGAIN:
        shutil.rmtree(folder / "tables" / name)
    # The fit of SEP stays and is applied: of so few rows it differs by 1e-3 between processors.
    for fitted in [path for path in (folder / "fits").glob("*/*/*") if path.name != "sep"]:
        shutil.rmtree(fitted) if fitted.is_dir() else fitted.unlink()
    run.sgpu("benchmark", run.given / "study.yaml", "--out", folder)
    write_csv(going_on(folder, STORED), run.out / "stages.csv")
    write_schemas(folder / "tables", run.out / "schemas.json")
    write_csv(rows(folder / "tables" / "predictions", without=["fit_id"]), run.out / "predictions.csv")
    write_measures(folder / "metrics.csv", run.out)
    copy_tables(folder / "report", run.out / "report")


def going_on(folder: Path, stored: Collection[str]) -> list[dict[str, Any]]:
    """The stages of the last command; NotAsExpected if it did not take the ``stored`` ones as finished."""
    made = list(stages(folder))
    if again := [stage["name"] for stage in made if stage["name"] in stored and not stage["reused"]]:
        raise NotAsExpected(f"ran again (`sample` and `hidden` by the language model): {', '.join(again)}")
    return made


def copy_tables(report: Path, out: Path) -> None:
    """Every table of a report, without the one of times."""
    for file in sorted(report.rglob("*")):
        if file.suffix in (".csv", ".tex") and file.stem != TIMES:
            target = out / file.relative_to(report)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
