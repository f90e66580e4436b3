"""All fits as one job: in this process, and by real Ray Train workers of which one dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest

from bench.constructed import constructed_spectra
from sgpu.errors import DataError, StageError, UsageError
from sgpu.gp import GPClassifier
from sgpu.gp.fitting import TrainingRows
from sgpu.gp.persistence import read_pool, write_training_rows
from sgpu.gp.pooling import row_weights
from sgpu.provenance import available_cores
from sgpu.runtime.session import ray_session
from sgpu.stages.train_job import Desk, FitResult, FitTask, count_workers, fit_task, run_train_job
from sgpu.storage.location import Location
from sgpu.study.benchmark import load_study
from sgpu.study.models import card_of
from tests.object_store import ObjectStore
from tests.plan.test_plan import STUDIES

KEYS = ("smol/trivia", "smol/maths", "qwen/trivia", "qwen/maths")


@pytest.fixture
def tasks(tmp_path: Path) -> list[FitTask]:
    """Four small fits, the last but one with a single class."""
    made = []
    for seed, key in enumerate(KEYS):
        data = constructed_spectra(60, seed=seed)
        path = tmp_path / f"rows-{seed}.arrow"
        label = np.zeros(60, dtype=int) if seed == 2 else data.label
        write_training_rows(path, TrainingRows(data.spectra, label))
        made.append(FitTask(key, path, {"inducing": 20}, seed))
    return made


def bytes_of(results: list[FitResult]) -> list[bytes]:
    return [
        (result.folder / name).read_bytes()
        for result in results
        if result.folder
        for name in ("gp.json", "gp.safetensors")
    ]


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    data = constructed_spectra(5, seed=0)
    write_training_rows(tmp_path / "rows.arrow", TrainingRows(*data))
    rows = read_pool(tmp_path / "rows.arrow")
    assert np.array_equal(rows.x, data.spectra)
    assert np.array_equal(rows.y, data.label)


def test_cells_and_weights_come_back_as_they_were(tmp_path: Path) -> None:
    data, cells = constructed_spectra(5, seed=0), np.array([0, 0, 0, 1, 1])
    weights = row_weights(cells, "by_cell")
    write_training_rows(tmp_path / "rows.arrow", TrainingRows(*data, weights, cells))
    pool = read_pool(tmp_path / "rows.arrow")
    assert np.array_equal(pool.weights, weights)
    assert np.array_equal(pool.cells, cells)


def test_a_job_fits_what_the_classifier_fits(tasks: list[FitTask], tmp_path: Path) -> None:
    results = run_train_job(tasks, tmp_path / "fits", fitters=0)
    assert [result.key for result in results] == list(KEYS)
    assert [result.load().fit_report.degenerate for result in results] == [False, False, True, False]
    rows = read_pool(tasks[1].rows)
    alone = GPClassifier(inducing=20, seed=1).fit(rows.x, rows.y).predict(rows.x)
    assert np.array_equal(results[1].load().predict(rows.x).sd, alone.sd)


def test_finished_fits_are_not_made_again(tasks: list[FitTask], tmp_path: Path) -> None:
    first = run_train_job(tasks[:2], tmp_path / "fits", fitters=0)
    again = run_train_job(tasks, tmp_path / "fits", fitters=0)
    assert [result.reused for result in again] == [True, True, False, False]
    assert bytes_of(again[:2]) == bytes_of(first)


def test_a_job_with_nothing_left_to_fit_starts_no_workers(
    tasks: list[FitTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_train_job(tasks, tmp_path / "fits", fitters=0)
    monkeypatch.setattr("sgpu.stages.train_job._run_workers", lambda *_: pytest.fail("workers were started"))
    assert all(result.reused for result in run_train_job(tasks, tmp_path / "fits", fitters=2))


def test_fits_in_object_storage_are_those_of_a_folder_and_are_kept(
    object_store: ObjectStore, tasks: list[FitTask], tmp_path: Path
) -> None:
    place = Location.of(object_store.uri("fits"))
    here = run_train_job(tasks[:2], tmp_path / "fits", fitters=0)
    there = run_train_job(tasks[:2], place, fitters=0)
    spectra = read_pool(tasks[0].rows).x
    for a, b in zip(here, there, strict=True):
        assert np.array_equal(a.load().predict(spectra).sd, b.load().predict(spectra).sd)
    assert [result.reused for result in run_train_job(tasks, place, fitters=0)] == [True] * 2 + [False] * 2


def test_a_fit_whose_upload_was_cut_off_is_made_again(
    object_store: ObjectStore, tasks: list[FitTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Location.of(object_store.uri("fits"))
    write = Location.write_bytes

    def cut_off(self: Location, payload: bytes) -> None:
        if self.name == "gp.json":
            raise StageError("cut off")
        write(self, payload)

    with monkeypatch.context() as patched:
        patched.setattr(Location, "write_bytes", cut_off)
        with pytest.raises(StageError, match="cut off"):
            run_train_job(tasks[:1], place, fitters=0)
    assert [file.name for file in place.files(recursive=True)] == ["gp.safetensors", "rows-0.arrow"]
    (again,) = run_train_job(tasks[:1], place, fitters=0)
    assert not again.reused and again.load().fit_report.features


def test_rows_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"fit 'a' cannot be read.*absent\.arrow"):
        run_train_job([FitTask("a", tmp_path / "absent.arrow")], tmp_path, fitters=0)


@pytest.mark.parametrize("change", ["rows", "settings", "seed"])
def test_a_changed_task_is_fitted_anew(tasks: list[FitTask], tmp_path: Path, change: str) -> None:
    first = run_train_job(tasks[:1], tmp_path / "fits", fitters=0)[0]
    task = tasks[0]
    changed = {
        "rows": FitTask(task.key, tasks[1].rows, task.settings, task.seed),
        "settings": FitTask(task.key, task.rows, {"inducing": 21}, task.seed),
        "seed": FitTask(task.key, task.rows, task.settings, 99),
    }[change]
    second = run_train_job([changed], tmp_path / "fits", fitters=0)[0]
    assert not second.reused
    assert second.folder != first.folder


def test_rows_that_cannot_be_fitted_are_a_problem_of_their_task_only(
    tasks: list[FitTask], tmp_path: Path
) -> None:
    data = constructed_spectra(60, seed=0)
    data.spectra[7, 3] = np.nan
    write_training_rows(tasks[0].rows, TrainingRows(*data))
    tasks[1].rows.write_text("not arrow")
    results = run_train_job(tasks, tmp_path / "fits", fitters=0)
    assert "row 7 of the spectra is not finite" in str(results[0].problem)
    assert "not a file of training rows" in str(results[1].problem)
    assert [result.problem for result in results[2:]] == [None, None]
    with pytest.raises(DataError, match="row 7"):
        results[0].load()


def test_a_fit_killed_before_its_last_file_leaves_nothing(
    tasks: list[FitTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "rename", dies)
        run_train_job(tasks[:1], tmp_path / "fits", fitters=0)
    assert not run_train_job(tasks[:1], tmp_path / "fits", fitters=0)[0].reused


@pytest.mark.parametrize("key", ["", "/absolute", "../outside", "a/../../b", "_ray_train/x"])
def test_a_key_that_leaves_the_folder_is_refused(tasks: list[FitTask], tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match="not a relative path"):
        run_train_job([FitTask(key, tasks[0].rows)], tmp_path, fitters=0)


def test_two_fits_of_one_key_are_refused(tasks: list[FitTask], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="used twice: smol/trivia"):
        run_train_job([tasks[0], tasks[0]], tmp_path, fitters=0)


def test_eight_workers_share_the_fits_of_the_papers_study_evenly() -> None:
    study = load_study(STUDIES / "paper.yaml")
    methods = {"saplma": 34.5, "sep": 10.4}  # seconds a layer; a classifier takes 0.6
    layers = {model.name: card_of(model).shape[0] + 1 for model in study.models}
    tasks = [FitTask(str(cell), Path(), seconds=0.6) for cell in study.cells()]
    tasks += [
        FitTask(f"{cell}/{method}", Path(), seconds=seconds * layers[cell.model])
        for cell in study.cells()
        for method, seconds in methods.items()
    ]
    desk, spent = Desk(tasks), dict.fromkeys(range(8), 0.0)
    while (task := desk.take(worker := min(spent, key=spent.__getitem__))) is not None:
        spent[worker] += task.seconds
        desk.put(FitResult(task.key, "", None, None, False, task.seconds))
    assert len(desk.results()) == 3 * 24
    assert max(spent.values()) <= 1.2 * mean(spent.values())


@pytest.mark.parametrize(
    ("fitters", "seconds", "address", "workers"),
    [
        (None, 59.0, None, 0),
        (None, 61.0, None, min(3, available_cores())),
        (None, 1.0, "auto", 3),
        (0, 1e6, None, 0),
        (1, 1e6, None, 0),
        (1, 1.0, "auto", 1),
        (2, 1.0, None, 2),
    ],
)
def test_fits_of_a_minute_are_made_in_this_process_unless_the_study_says_more(
    fitters: int | None, seconds: float, address: str | None, workers: int
) -> None:
    due = [FitTask(key, Path(), seconds=seconds / 3) for key in "abc"]
    assert count_workers(due, fitters, address) == workers
    assert count_workers([], 8, address) == 0


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    with ray_session():
        yield


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("ray_cluster")
def test_a_job_survives_the_death_of_a_worker(tasks: list[FitTask], tmp_path: Path) -> None:
    marker = tmp_path / "died"

    # Nested, so that it travels by value: workers cannot import this file.
    def fit_or_die(task: FitTask, out: Path) -> FitResult:
        if task.key == "qwen/maths" and not marker.exists():
            marker.touch()
            os._exit(1)
        return fit_task(task, out)

    results = run_train_job(tasks, tmp_path / "fits", fitters=2, cpus_per_worker=0.5, fit=fit_or_die)
    assert marker.exists()
    assert [result.key for result in results] == list(KEYS)
    assert not any(result.reused for result in results)  # what was finished before is not made again
    assert bytes_of(results) == bytes_of(run_train_job(tasks, tmp_path / "alone", fitters=0))


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("ray_cluster")
def test_a_pooled_fit_whose_worker_dies_on_the_way_ends_as_if_it_had_not(tmp_path: Path) -> None:
    data, cells = constructed_spectra(900, seed=0), np.repeat([0, 1, 2], [600, 200, 100])
    rows = TrainingRows(*data, row_weights(cells, "by_cell"), cells)
    write_training_rows(tmp_path / "rows.arrow", rows)
    task = FitTask("_global", tmp_path / "rows.arrow", {"inducing": 20, "hyper_rows": 300})
    marker = tmp_path / "died"

    def fit_or_die(task: FitTask, out: Path) -> FitResult:
        from sgpu.gp import fitting

        climb = fitting.climb

        def die_at_all_rows(bound: Any) -> float:
            # The hyper-parameters are found on a part of the rows, and q(u) of all of them is under way.
            bound.evaluate(bound.natural)
            if not marker.exists():
                marker.touch()
                os._exit(1)
            return climb(bound)

        fitting.climb = die_at_all_rows
        try:
            return fit_task(task, out)
        finally:
            fitting.climb = climb

    (result,) = run_train_job([task], tmp_path / "fits", fitters=2, cpus_per_worker=0.5, fit=fit_or_die)
    assert marker.exists()
    (undisturbed,) = run_train_job([task], tmp_path / "alone", fitters=0)
    ours, theirs = (fit.load().predict(data.spectra) for fit in (result, undisturbed))
    assert ours.probability == pytest.approx(theirs.probability, abs=1e-12)
    assert ours.sd == pytest.approx(theirs.sd, abs=1e-12)
    assert result.load().fit_report.effective_rows == pytest.approx(
        900**2 / sum(300**2 / n for n in (600, 200, 100))
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("ray_cluster")
def test_a_job_that_always_dies_gives_up_and_keeps_what_it_has(tasks: list[FitTask], tmp_path: Path) -> None:
    def fit_or_die(task: FitTask, out: Path) -> FitResult:
        if task.key == "qwen/maths":
            os._exit(1)
        return fit_task(task, out)

    with pytest.raises(StageError, match="gave up after 3 tries"):
        run_train_job(tasks, tmp_path / "fits", fitters=2, cpus_per_worker=0.5, fit=fit_or_die)
    again = run_train_job(tasks, tmp_path / "fits", fitters=0)
    assert again[1].reused
