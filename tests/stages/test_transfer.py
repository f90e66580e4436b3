"""Transfer between constructed cells whose right answer is known, from published tables to forecasts."""

from __future__ import annotations

import gc
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import log_loss

import sgpu.stages.transfer as transfer_stage
import sgpu.stages.transfer_fits as transfer_fits
from bench.constructed_cells import source_cell, write_run
from sgpu.evaluation.ranking import auroc
from sgpu.gp.classifier import GPClassifier
from sgpu.gp.fitting import TrainingRows
from sgpu.gp.persistence import read_pool, write_training_rows
from sgpu.report.transfer.summary import collect_transfer
from sgpu.stages.train_job import FitResult, FitTask
from sgpu.stages.transfer import forecasts, publish_forecasts
from sgpu.stages.transfer_sources import TransferRun
from sgpu.storage.store import Partition
from sgpu.study.benchmark import Cell
from sgpu.study.transfer import TransferStudy
from sgpu.transfer.designs import Gap, Plan, TrainingPool, plans, pool_of
from sgpu.transfer.guard import LeakageError
from sgpu.transfer.measure import Forecast
from sgpu.transfer.rows import TransferRows, joined
from tests.stages.quiet_runs import quiet

MODELS, TEXT = ("one", "two", "three"), ("facts", "trivia")
REVERSED = "reversed"
ROWS = 200
STUDY: dict[str, Any] = {
    "selection": {"kernels": ["matern15"], "representations": ["raw"], "inducing": [32]},
    "curve": {"cells": [1], "rows": [60], "seeds": 2},
    "calibration": {"labels": [0, 50], "maps": ["shift"], "seeds": 2},
    "bootstrap": 100,
    "tracking": {"mlflow": "none"},
}


def open_run(out: Path, runs: list[Path], **changed: Any) -> TransferRun:
    tree = {**STUDY, "runs": [{"path": str(path)} for path in runs], **changed}
    return TransferRun(TransferStudy.model_validate(tree), out, quiet())


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Ten cells: three models on two text data sets that share one map, two image cells that share it too,
    and two cells in which right and wrong are turned round."""
    root = tmp_path_factory.mktemp("runs")
    return [
        write_run(root / "text", MODELS, TEXT, rows=ROWS),
        write_run(root / "vision", ["sees"], ["photos", "charts"], rows=ROWS, vision=True),
        write_run(root / "turned", ["four", "five"], [REVERSED], rows=ROWS, reverse=[REVERSED]),
    ]


@pytest.fixture(scope="module")
def done(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> TransferRun:
    run = open_run(tmp_path_factory.mktemp("transfer"), sources)
    publish_forecasts(run)
    return run


@pytest.fixture(scope="module")
def metrics(done: TransferRun) -> pl.DataFrame:
    return collect_transfer(done).metrics.filter(pl.col("metric") == "auroc")


def test_where_the_map_is_shared_a_pool_without_the_target_is_as_good_as_in_domain(
    sources: list[Path], tmp_path: Path
) -> None:
    run = open_run(tmp_path, sources[:2], curve=None)
    publish_forecasts(run)
    found = collect_transfer(run).metrics.filter(pl.col("metric") == "auroc")
    mean = dict(found.group_by("design").agg(pl.col("value").mean()).iter_rows())
    assert mean["in_domain"] > 0.65
    for design in ("leave_one_model_out", "leave_one_dataset_out", "leave_both_out", "modality"):
        assert mean[design] == pytest.approx(mean["in_domain"], abs=0.03)


def test_where_the_map_is_turned_round_transfer_fails_by_as_much(metrics: pl.DataFrame) -> None:
    turned = metrics.filter(pl.col("dataset") == REVERSED)
    for row in turned.filter(pl.col("design") == "leave_both_out").iter_rows(named=True):
        assert row["value"] < 0.4
    own = turned.filter(pl.col("design") == "in_domain")["value"]
    assert (own > 0.6).all()
    # Within the data set that is turned round, models agree with each other.
    assert (turned.filter(pl.col("design") == "model_matrix")["value"] > 0.6).all()


def test_vision_cells_train_for_text_cells(metrics: pl.DataFrame) -> None:
    found = metrics.filter((pl.col("method") == "from vision cells") & pl.col("dataset").is_in(TEXT))
    assert found.height == 6 and (found["value"] > 0.5).all()


def test_an_entry_of_the_matrix_is_the_classifier_of_the_source_on_the_target(metrics: pl.DataFrame) -> None:
    source, target = source_cell("one", "facts", ROWS), source_cell("two", "facts", ROWS)
    train, test = source.part("train"), target.part("test")
    alone = GPClassifier(inducing=32).fit(train.spectra, train.label)
    expected = auroc(alone.predict(test.spectra).probability, test.label)
    row = metrics.filter(
        (pl.col("model") == "two") & (pl.col("dataset") == "facts") & (pl.col("method") == "from model one")
    )
    assert row["value"].item() == pytest.approx(expected, abs=1e-12)


def test_a_pool_is_the_training_rows_of_all_its_sources(metrics: pl.DataFrame) -> None:
    names = [(m, "trivia") for m in ("two", "three")]
    names += [("sees", "photos"), ("sees", "charts"), ("four", REVERSED), ("five", REVERSED)]
    parts = [source_cell(m, d, ROWS, reverse=d == REVERSED).part("train") for m, d in names]
    pool, test = joined(parts), source_cell("one", "facts", ROWS).part("test")
    alone = GPClassifier(inducing=32).fit(pool.spectra, pool.label)
    expected = auroc(alone.predict(test.spectra).probability, test.label)
    row = metrics.filter(
        (pl.col("model") == "one") & (pl.col("dataset") == "facts") & (pl.col("method") == "leave_both_out")
    )
    assert row["value"].item() == pytest.approx(expected, abs=1e-12)


def test_cells_of_a_pool_can_weigh_the_same_whatever_their_rows(tmp_path: Path) -> None:
    sizes = {("one", "facts"): ROWS, ("two", "trivia"): 80, ("three", "quiz"): ROWS}
    runs = [write_run(tmp_path / m, [m], [d], rows=rows) for (m, d), rows in sizes.items()]
    run = open_run(tmp_path / "out", runs, designs=["leave_both_out"], curve=None, pool="by_cell")
    publish_forecasts(run)
    parts = [source_cell(m, d, sizes[m, d]).part("train") for m, d in list(sizes)[:2]]
    test = source_cell("three", "quiz", ROWS).part("test")
    weights = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
    cells = np.repeat([0, 1], [len(part) for part in parts])
    pool = joined(parts)
    alone = GPClassifier(inducing=32).fit(pool.spectra, pool.label, weights * len(pool) / 2, cells)
    found = collect_transfer(run).metrics.filter(
        (pl.col("metric") == "brier") & (pl.col("model") == "three") & (pl.col("method") == "leave_both_out")
    )["value"]
    expected = float(np.mean((alone.predict(test.spectra).probability - test.label) ** 2))
    assert found.item() == pytest.approx(expected, abs=1e-9)
    even = GPClassifier(inducing=32).fit(pool.spectra, pool.label)
    assert abs(float(np.mean((even.predict(test.spectra).probability - test.label) ** 2)) - expected) > 1e-6


def test_a_curve_ends_with_the_whole_pool(done: TransferRun) -> None:
    data = collect_transfer(done)
    own = pl.col("dataset") == "facts"
    curve = data.curve.filter((pl.col("axis") == "cells") & (pl.col("metric") == "auroc") & own)
    assert curve.group_by("model").agg(pl.col("size").max())["size"].to_list() == [6, 6, 6]
    whole = curve.filter(pl.col("size") == 6).sort("model")["value"]
    pooled = data.metrics.filter(
        (pl.col("metric") == "auroc") & (pl.col("method") == "leave_both_out") & own
    ).sort("model")["value"]
    assert whole.to_list() == pytest.approx(pooled.to_list(), abs=1e-12)


def test_labels_of_a_target_cannot_repair_a_ranking_that_is_turned_round(done: TransferRun) -> None:
    points = collect_transfer(done).calibration.filter(
        (pl.col("metric") == "auroc") & (pl.col("dataset") == REVERSED)
    )
    assert set(points["size"]) == {0, 50} and points["difference"].to_list() == [0.0] * 4
    assert (points["value"] < 0.4).all()


def test_the_same_seed_gives_the_same_results_in_another_folder(
    done: TransferRun, sources: list[Path], tmp_path: Path
) -> None:
    again = open_run(tmp_path, sources)
    publish_forecasts(again)
    first, second = collect_transfer(done), collect_transfer(again)
    for name in ("metrics", "comparisons", "curve", "calibration"):
        assert getattr(first, name).equals(getattr(second, name))


def test_at_most_two_pools_are_in_memory_however_many_there_are(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[int] = []

    def fit_report(*arguments: Any) -> None:
        alive.append(sum(isinstance(one, TrainingPool) for one in gc.get_objects()))

    monkeypatch.setattr(transfer_fits, "check_report", fit_report)
    curve = {"design": "leave_both_out", "cells": [], "rows": [60], "seeds": 8}
    chosen = {"kernels": ["matern15", "rbf"], "representations": ["raw"], "inducing": [8]}
    run = open_run(tmp_path, sources[:1], designs=["leave_both_out"], curve=curve, selection=chosen)
    made, _ = forecasts(run)
    assert len(made) == 72 and len(alive) > len(made)
    assert max(alive) == 2  # that of the plan, and a fold or draw of it


def test_rows_of_no_two_forecasts_are_in_memory_when_they_are_written_or_read(done: TransferRun) -> None:
    published = done.store.require("transfer_forecasts", Partition.of(design="curve"))
    groups = [
        metadata.row_group(i).num_rows
        for file in published.files
        for metadata in [pq.read_metadata(file)]
        for i in range(metadata.num_row_groups)
    ]
    assert len(groups) == sum(record["axis"] is not None for record in published.manifest["records"]) > 1
    assert max(groups) == max(len(cell.rows) for cell in done.cells.values())


def test_nothing_is_fitted_again_when_nothing_changed(
    done: TransferRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a fit was asked for")

    monkeypatch.setattr(transfer_fits, "run_train_job", refused)
    publish_forecasts(TransferRun(done.study, done.out, done.progress))


def test_the_choice_is_made_on_validation_questions_of_cells_that_the_fit_has_not_seen(
    sources: list[Path], tmp_path: Path
) -> None:
    chosen = {"kernels": ["matern15", "rbf"], "representations": ["raw"], "inducing": [16]}
    run = open_run(
        tmp_path, sources[:1], selection=chosen, curve=None, calibration=None, designs=["leave_both_out"]
    )
    made, _ = forecasts(run)
    one = next(f for f in made if f.plan.target == TARGET and f.plan.design == "leave_both_out")
    cells = [source_cell(model, "trivia", ROWS) for model in ("two", "three")]
    losses = []
    for train, held in (cells, cells[::-1]):
        rows, validation = train.part("train"), held.part("validation")
        alone = GPClassifier("rbf", inducing=16).fit(rows.spectra, rows.label)
        losses.append(log_loss(validation.label, alone.predict(validation.spectra).probability))
    found: Any = one.record["validation_log_loss"]
    assert found["rbf, raw, 16 inducing points"] == pytest.approx(np.mean(losses))
    assert one.record["n_selection"] == 60


TARGET = Cell("one", "facts")


def fail(run: TransferRun, message: str) -> None:
    """Make sure that the run finds the leak, and before it publishes anything."""
    with pytest.raises(LeakageError, match=message):
        publish_forecasts(run)
    assert not (run.out / "tables").exists()


@pytest.mark.parametrize(("place", "told"), [("training", "training"), ("validation", "selection")])
def test_a_leak_planted_at_any_place_fails_the_run_before_anything_is_published(
    place: str, told: str, sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(tmp_path, sources[:1], curve=None, calibration=None, designs=["leave_both_out"])
    leak = run.cells[TARGET].part("train").take(np.array([0]))

    def leaking(plan: Plan, cells: Any) -> TrainingPool:
        pool = pool_of(plan, cells)
        rows: TransferRows = getattr(pool, place)
        return replace(pool, **{place: joined([rows, leak])}) if plan.target == TARGET else pool

    monkeypatch.setattr(transfer_stage, "pool_of", leaking)
    fail(run, f"leak into {told}")


def one_design(out: Path, sources: list[Path], **changed: Any) -> TransferRun:
    return open_run(out, sources[:1], curve=None, calibration=None, designs=["leave_both_out"], **changed)


def with_more(path: Path, spectra: np.ndarray, label: np.ndarray) -> None:
    """Write a file of rows anew with some more."""
    known = read_pool(path)
    labels = np.concatenate([known.y, label]).astype(np.int64)
    write_training_rows(path, TrainingRows(np.concatenate([known.x, spectra]), labels))


@pytest.mark.parametrize("coinciding", [False, True])
def test_a_file_of_rows_that_got_more_than_the_guard_saw_fails_the_run(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coinciding: bool
) -> None:
    run = one_design(tmp_path, sources)
    leak = run.cells[TARGET].part("test")

    def leaking(path: Path, rows: TrainingRows) -> None:
        spectra = rows.x
        write_training_rows(path, TrainingRows(spectra, rows.y))
        # Rows at the places of those that are there move no inducing point.
        with_more(path, spectra[: len(leak)] if coinciding else leak.spectra, leak.label)

    monkeypatch.setattr(transfer_fits, "write_training_rows", leaking)
    fail(run, "leak into the fit for the target")


def fitted_before(out: Path, sources: list[Path]) -> TransferRun:
    """A run that finds its files of rows and its fits there, and nothing published."""
    publish_forecasts(one_design(out, sources))
    shutil.rmtree(out / "tables")
    return one_design(out, sources)


@pytest.mark.parametrize("cut", [False, True])
def test_a_file_of_rows_that_was_changed_or_cut_since_an_earlier_run_is_written_anew(
    sources: list[Path], tmp_path: Path, cut: bool
) -> None:
    run = fitted_before(tmp_path, sources)
    file = sorted((tmp_path / "fits" / "rows").glob("*.arrow"))[0]
    whole, known = file.read_bytes(), read_pool(file)
    if cut:
        file.write_bytes(whole[:-100])
    else:
        with_more(file, known.x[:1], known.y[:1])
    publish_forecasts(run)
    assert file.read_bytes() == whole


def test_a_file_of_rows_that_is_changed_while_it_is_fitted_fails_the_run(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, fit = one_design(tmp_path, sources), transfer_fits.run_train_job

    def leaking(tasks: list[FitTask], *arguments: Any, **options: Any) -> list[FitResult]:
        if not tasks:  # nothing is chosen in this study
            return fit(tasks, *arguments, **options)
        file = Path(str(tasks[0].rows))
        whole, known = file.read_bytes(), read_pool(file)
        with_more(file, known.x[:1], known.y[:1])
        results = fit(tasks, *arguments, **options)
        file.write_bytes(whole)  # and back again
        return results

    monkeypatch.setattr(transfer_fits, "run_train_job", leaking)
    fail(run, "leak into the fit for the target")


def test_a_run_that_dies_while_it_writes_rows_leaves_no_file_of_them(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(place: str, *_: object) -> None:
        Path(place).write_bytes(b"ARROW1")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("sgpu.gp.persistence.write_arrow", dies)
        publish_forecasts(one_design(tmp_path, sources))
    assert not list((tmp_path / "fits" / "rows").glob("*.arrow"))
    assert publish_forecasts(one_design(tmp_path, sources))


@pytest.mark.parametrize("degenerate", [False, True])
def test_a_fit_that_was_replaced_by_one_of_other_rows_fails_the_run(
    sources: list[Path], tmp_path: Path, degenerate: bool
) -> None:
    run = fitted_before(tmp_path, sources)
    fit = sorted((tmp_path / "fits").rglob("gp.json"))[0].parent
    rows = read_pool(tmp_path / "fits" / "rows" / f"{fit.parent.parent.name}.arrow")
    label = np.ones_like(rows.y) if degenerate else np.append(rows.y, 1)
    spectra = rows.x if degenerate else np.concatenate([rows.x, rows.x[:1]])
    GPClassifier(inducing=32).fit(spectra, label).save(fit)
    fail(run, "leak into the fit for the target")


def test_a_wrong_plan_fails_the_run(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*arguments: Any) -> tuple[list[Plan], list[Gap]]:
        made, gaps = plans(*arguments)
        everything = tuple(run.cells)
        return [
            replace(p, sources=everything, kept_out=frozenset()) for p in made if p.target == TARGET
        ], gaps

    run = one_design(tmp_path, sources)
    monkeypatch.setattr(transfer_stage, "plans", wrong)
    fail(run, r"leak into training: .* the target one/facts")


def test_two_data_sets_that_ask_the_same_do_not_train_for_each_other(tmp_path: Path) -> None:
    asked = {"first": "same", "second": "same"}
    path = write_run(tmp_path / "twice", ["one", "two"], ["first", "second"], rows=80, questions=asked)
    run = open_run(tmp_path / "out", [path], curve=None, calibration=None)
    made, gaps = forecasts(run)
    assert {one.plan.design for one in made} == {"in_domain", "model_matrix", "leave_one_model_out"}
    whys = [gap.why for gap in gaps if gap.design == "leave_one_dataset_out"]
    assert len(whys) == 4 and all("0 training rows" in why for why in whys)
    pooled: list[Forecast] = [one for one in made if one.plan.design == "leave_one_model_out"]
    # Of the other model's 2 x 40 training and 2 x 12 validation questions none is a test question.
    assert all(one.record["left_out_as_target_questions"] == 0 for one in pooled)


def test_what_is_read_back_is_what_was_published(done: TransferRun) -> None:
    rows = [read_pool(path) for path in (done.out / "fits" / "rows").glob("*.arrow")]
    assert all(len(pool.x) == len(pool.y) for pool in rows)
    table = pl.read_delta(str(done.out / "tables" / "transfer_forecasts"))
    keys = ["design", "model", "dataset", "method", "axis", "size", "seed", "question_id"]
    assert table.select(keys).is_unique().all()


def test_with_one_source_the_first_representation_stands(sources: list[Path], tmp_path: Path) -> None:
    chosen = {"kernels": ["matern15"], "representations": ["raw", "log"], "inducing": [16]}
    run = open_run(
        tmp_path, sources[:1], selection=chosen, curve=None, calibration=None, designs=["model_matrix"]
    )
    made, _ = forecasts(run)
    for one in made:
        assert len(one.record["validation_log_loss"]) == (2 if one.plan.design == "in_domain" else 1)  # type: ignore[arg-type]
        assert one.plan.design == "in_domain" or "raw" in str(one.record["chosen"])
