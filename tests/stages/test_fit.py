"""Fits of a finished study become models: of spectra, and of agreement where the study has both."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from sgpu.fitted.model import load_model
from sgpu.stages.fit import fit_cells
from tests.stages.quiet_runs import quiet_run

GIVEN = Path(__file__).parents[1] / "golden" / "data" / "benchmark" / "given"
ANSWERS, ASKED = [["Lima", "It is Lima.", "Cusco", "Lima", "Lima", "Lima"]], ["What is the capital of Peru?"]


def test_model_of_a_cell_reads_questions_if_the_study_has_both_classifiers(tmp_path: Path) -> None:
    shutil.copytree(GIVEN / "run" / "tables", tmp_path / "tables")
    shutil.copy(GIVEN / "run" / "run.json", tmp_path)
    study = yaml.safe_load((GIVEN / "study.yaml").read_text()) | {"sensitivity": {}}
    by = {}
    for methods in (["sgpu"], ["sgpu", "sgpu_plus"], ["sgpu"]):
        run = quiet_run(study | {"methods": methods}, tmp_path)
        folder = fit_cells(run, run.study.cells())[0].folder
        assert folder is not None
        result = load_model(folder).predict(ANSWERS, questions=ASKED)
        by[folder.name, len(by)] = (result.by, result.answer)
    one, both, again = by.values()
    assert len({name for name, _ in by}) == 1  # one fit to spectra, completed in another way
    assert one == again == (["spectrum"], [None])
    assert both == (["agreement"], ["Lima"])
