from __future__ import annotations

from pathlib import Path

import pytest

from sgpu.errors import UsageError
from sgpu.study.benchmark import load_study
from sgpu.study.transfer import load_transfer_study

STUDIES = Path(__file__).resolve().parents[2] / "pipelines" / "studies"


def written(folder: Path, text: str) -> Path:
    path = folder / "t.yaml"
    path.write_text(text)
    return path


def test_a_study_needs_runs_only_and_takes_its_name_from_the_file(tmp_path: Path) -> None:
    study = load_transfer_study(written(tmp_path, "runs: [{path: a/b}]"))
    assert study.name == "t" and study.n is None
    assert study.runs[0].path == str(tmp_path / "a" / "b")  # beside the study file
    assert study.calibration is not None and study.calibration.labels == [0, 25, 50, 100, 200]


def test_a_run_in_object_storage_keeps_its_address(tmp_path: Path) -> None:
    study = load_transfer_study(written(tmp_path, "runs: [{path: 's3://bucket/runs/a'}]"))
    assert study.runs[0].path == "s3://bucket/runs/a"


def test_no_label_is_always_the_first_point_of_a_recalibration(tmp_path: Path) -> None:
    study = load_transfer_study(written(tmp_path, "runs: [{path: a}]\ncalibration: {labels: [50, 10, 50]}"))
    assert study.calibration is not None and study.calibration.labels == [0, 10, 50]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "runs"),
        ("runs: []", "at least 1 item"),
        ("runs: [{pth: a}]", "runs.0.pth: unknown key. Did you mean 'path'?"),
        ("runs: [{path: a}]\ndesign: [modality]", "Did you mean 'designs'?"),
        ("runs: [{path: a}]\nselection: {kernel: [rbf]}", "Did you mean 'kernels'?"),
        ("runs: [{path: a}]\ncalibration: {label: [1]}", "Did you mean 'labels'?"),
        ("runs: [{path: a}]\ndesigns: [matrix]", "model_matrix"),
        ("runs: [{path: a}]\ndesigns: [modality]", "`curve.design` is 'leave_both_out'"),
        ("runs: [{path: a}, {path: a}]", "twice"),
        ("runs: [{path: a}]\nname: a/b", "names folders"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_transfer_study(written(tmp_path, text))
    assert message in str(caught.value)


def test_settings_can_be_changed_from_the_command_line(tmp_path: Path) -> None:
    path = written(tmp_path, "runs: [{path: a}]")
    study = load_transfer_study(path, ["curve=null", "selection.inducing=[8, 16]", "runs.0.path=/b"])
    assert study.curve is None and study.selection.inducing == [8, 16] and study.runs[0].path == "/b"


@pytest.mark.parametrize("name", ["transfer", "transfer_families", "paper_transfer"])
def test_the_studies_that_come_along_read_runs_of_studies_that_come_along(name: str) -> None:
    study = load_transfer_study(STUDIES / f"{name}.yaml")
    files = [path for path in STUDIES.glob("*.yaml") if "transfer" not in path.stem]
    cells = {found.name: list(map(str, found.cells())) for found in map(load_study, files)}
    cells["easyvqa-tiny"] = []  # of examples/easy_vqa, a plug-in that need not be installed here
    for run in study.runs:
        assert set(run.cells) <= set(cells[Path(run.path).name])
