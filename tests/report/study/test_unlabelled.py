"""Missing labels end a study with the code that its bounds promise; a study without any is another matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sgpu.errors import QuarantineError
from sgpu.report.study.questions import check_labels, unlabelled
from sgpu.stages.questions import prepare_questions
from sgpu.stages.run import Run, check_quarantine
from sgpu.storage.store import Partition
from sgpu.storage.tables import LABELS
from sgpu.study.benchmark import Cell
from tests.stages.quiet_runs import quiet_run

CELL = Cell("m", "own")


def imported(folder: Path, rows: list[dict[str, Any]], **bounds: float) -> Run:
    lines = [
        {"question": "?", "answers": ["a", "b"], "question_id": f"q{i}", **row} for i, row in enumerate(rows)
    ]
    (folder / "own.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    spec = {"kind": "responses", "path": str(folder / "own.jsonl"), "model": "m", "name": "own"}
    run = quiet_run({"datasets": [spec], "bounds": bounds}, folder / "out")
    prepare_questions(run, "own")
    return run


def test_more_rejected_rows_than_the_bound_end_with_the_code_of_quarantine(tmp_path: Path) -> None:
    rows = [{"label": 1, "answers": ["a", "b"] if i % 5 else ["a"]} for i in range(20)]
    run = imported(tmp_path, rows)
    with pytest.raises(QuarantineError, match=r"4 of 20 rows of own, more than the bound of 5%") as caught:
        check_quarantine(run)
    assert caught.value.exit_code == 3


def judged_in_vain(run: Run, rows: int) -> Run:
    """As the alias judge leaves a cell of which it could label no row."""
    records = [{"question_id": f"q{i}", "status": "missing"} for i in range(rows)]
    table = pa.Table.from_pylist(records, schema=LABELS.schema)
    run.store.write(LABELS, Partition.of(model="m", dataset="own", judge="alias"), table, "f", {})
    return run


def test_more_missing_labels_than_the_bound_end_with_the_code_of_quarantine(tmp_path: Path) -> None:
    rows = [{"label": 1} if i % 5 else {} for i in range(20)]
    with pytest.raises(QuarantineError, match=r"4 of 20 questions of m/own have no label, .* 5%") as caught:
        check_labels(imported(tmp_path, rows))
    assert caught.value.exit_code == 3


def test_as_many_as_the_bound_are_tolerated(tmp_path: Path) -> None:
    check_labels(imported(tmp_path, [{"label": 1} if i % 5 else {} for i in range(20)], missing_labels=0.2))


def test_references_that_no_answer_could_be_judged_by_are_missing_labels(tmp_path: Path) -> None:
    run = judged_in_vain(imported(tmp_path, [{"references": ["x"]}, *[{}] * 9]), 10)
    assert not unlabelled(run, CELL)
    with pytest.raises(QuarantineError, match="10 of 10"):
        check_labels(run)


def test_a_study_without_any_label_or_reference_is_so_by_design(tmp_path: Path) -> None:
    run = judged_in_vain(imported(tmp_path, [{}] * 10), 10)
    assert unlabelled(run, CELL)
    check_labels(run)
    questions = run.store.require("questions", Partition.of(dataset="own")).read(["split"])
    assert set(questions["split"].to_pylist()) == {"test"}  # none is set aside for a training that cannot be
