import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

from sgpu.errors import DataError
from sgpu.evaluation.calibration import brier, ece
from sgpu.evaluation.cell import EvaluationSettings, evaluate_answers, evaluate_cell
from sgpu.evaluation.mapping import fit_mapping
from sgpu.evaluation.ranking import auroc, selective_accuracy
from sgpu.storage.tables import METRICS

FAST = EvaluationSettings(n_resamples=20, record={"encoder": "minilm"})
SELECTIVE = {f"selective_accuracy_{percent}": percent / 100 for percent in (50, 70, 80, 90)}
RANKING = {"auroc", "auarc", "auarc_20", "accuracy"} | set(SELECTIVE)
ERRORS = {
    "ece": (15, "width"),
    "ece_10": (10, "width"),
    "ece_20": (20, "width"),
    "ece_mass": (10, "mass"),
    "ece_mass_15": (15, "mass"),
    "ece_mass_20": (20, "mass"),
}
CALIBRATION = {"brier", "log_loss"} | set(ERRORS)
UNSAFE = {"unsafe_share", "accuracy_unsafe", "accuracy_kept", "auroc_kept"}


class Cell:
    """300 rows, a third in each split; a score and a probability for each."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.label = (rng.random(300) < 0.6).astype(float)
        self.split = np.array(["train", "validation", "test"])[np.arange(300) % 3]
        self.score = 5 * self.label + rng.normal(size=300) * 5
        self.p = 1 / (1 + np.exp(-self.score / 5))
        self.test, self.validation = self.split == "test", self.split == "validation"

    def rows(self, settings=FAST, **unsafe):
        found = evaluate_cell(
            {"pe": self.score, "sgpu": self.p},
            {"sgpu": self.p},
            self.label,
            self.split,
            settings=settings,
            **unsafe,
        )
        return {(row.method, row.metric): row for row in found}


@pytest.fixture
def cell():
    return Cell()


def test_each_method_gets_its_metrics_once(cell):
    rows = cell.rows(unsafe={"sgpu": np.abs(cell.p - 0.5) < 0.1})
    of = {m: {metric for method, metric in rows if method == m} for m in ("pe", "sgpu")}
    mapped = {metric + suffix for metric in CALIBRATION for suffix in ("", "_platt", "_isotonic")}
    assert of["pe"] == RANKING | mapped
    assert of["sgpu"] == RANKING | CALIBRATION | UNSAFE


def test_values_are_over_the_test_split_only(cell):
    row = cell.rows()["pe", "auroc"]
    assert row.value == pytest.approx(auroc(cell.score[cell.test], cell.label[cell.test]))
    assert row.lo < row.value < row.hi
    assert (row.n, row.n_missing) == (100, 0)


@pytest.mark.parametrize(
    ("mapping", "metric"),
    [("minmax", "brier"), ("platt", "brier_platt"), ("isotonic", "brier_isotonic")],
)
def test_scores_are_mapped_by_what_the_validation_split_says(cell, mapping, metric):
    apply = fit_mapping(mapping, cell.score[cell.validation], cell.label[cell.validation])
    row = cell.rows()["pe", metric]
    assert row.value == pytest.approx(brier(apply(cell.score[cell.test]), cell.label[cell.test]))
    assert json.loads(row.settings)["mapping"] == mapping


def test_test_rows_do_not_move_the_maps(cell):
    before = cell.rows()["pe", "ece"].settings
    cell.label[cell.test] = 1 - cell.label[cell.test]
    flipped = cell.rows()["pe", "brier"].value
    apply = fit_mapping("minmax", cell.score[cell.validation], cell.label[cell.validation])
    assert flipped == pytest.approx(brier(apply(cell.score[cell.test]), cell.label[cell.test]))
    assert cell.rows()["pe", "ece"].settings == before


def test_a_probability_is_taken_as_it_is(cell):
    row = cell.rows()["sgpu", "ece"]
    assert row.value == pytest.approx(ece(cell.p[cell.test], cell.label[cell.test]))
    assert "mapping" not in json.loads(row.settings)


@pytest.mark.parametrize(("metric", "definition"), ERRORS.items())
def test_each_calibration_error_is_what_its_name_and_settings_say(cell, metric, definition):
    row = cell.rows()["sgpu", metric]
    assert row.value == pytest.approx(ece(cell.p[cell.test], cell.label[cell.test], *definition))
    settings = json.loads(row.settings)
    assert (settings["bins"], settings["binning"]) == definition


@pytest.mark.parametrize(("metric", "coverage"), SELECTIVE.items())
def test_each_selective_accuracy_is_at_its_coverage(cell, metric, coverage):
    row = cell.rows()["pe", metric]
    expected = selective_accuracy(cell.score[cell.test], cell.label[cell.test], coverage)
    assert row.value == pytest.approx(expected)
    assert json.loads(row.settings)["coverage"] == coverage


def why(row):
    assert (row.value, row.lo, row.hi) == (None, None, None)
    return json.loads(row.settings)["undefined"]


def test_what_is_defined_gives_no_reason_and_what_is_not_gives_one(cell):
    cell.label[cell.test] = 1
    for row in cell.rows(unsafe={"sgpu": np.zeros(300)}).values():
        assert (row.value is None) == ("undefined" in json.loads(row.settings)), row.metric


def test_undefined_metrics_say_why(cell):
    cell.label[cell.test] = 1
    rows = cell.rows(unsafe={"sgpu": np.zeros(300)})
    assert why(rows["pe", "auroc"]) == "all rows are of one class"
    assert why(rows["sgpu", "auroc_kept"]) == "all kept rows are of one class"
    assert why(rows["sgpu", "accuracy_unsafe"]) == "no row is flagged"
    assert why(cell.rows(unsafe={"sgpu": np.ones(300)})["sgpu", "accuracy_kept"]) == "every row is flagged"


def test_validation_rows_of_one_class_leave_learned_maps_undefined(cell):
    cell.label[cell.validation] = 0
    rows = cell.rows()
    for suffix in ("platt", "isotonic"):
        row = rows["pe", f"ece_{suffix}"]
        assert why(row) == f"mapping '{suffix}' needs right and wrong validation rows, but all 100 are wrong."
        assert (row.n, row.n_missing) == (0, 100)
    assert rows["pe", "ece"].value is not None


def test_a_method_that_scored_nothing_is_undefined_and_counted(cell):
    cell.score = np.full(300, np.nan)
    rows = cell.rows()
    assert why(rows["pe", "auroc"]) == why(rows["pe", "accuracy"])
    assert "no test row has both a label and a value" in why(rows["pe", "auroc"])
    assert "no validation row" in why(rows["pe", "ece_platt"])
    assert (rows["pe", "auroc"].n, rows["pe", "auroc"].n_missing) == (0, 100)
    assert rows["sgpu", "auroc"].value is not None


def test_scores_that_are_all_alike_are_a_coin_toss_of_the_base_rate(cell):
    cell.score = np.zeros(300)
    rows = cell.rows()
    right, base = cell.label[cell.test].mean(), cell.label[cell.validation].mean()
    assert (rows["pe", "auroc"].value, rows["pe", "auroc"].lo, rows["pe", "auroc"].hi) == (0.5, 0.5, 0.5)
    for metric in ("auarc", "accuracy", *SELECTIVE):
        assert rows["pe", metric].value == pytest.approx(right), metric
    for metric in ERRORS:
        assert rows["pe", metric + "_platt"].value == pytest.approx(abs(base - right)), metric


def test_a_cell_of_eleven_rows_has_every_metric():
    rng = np.random.default_rng(0)
    label = np.array([1.0] * 8 + [0.0] * 3 + [1, 0, 1])
    split = np.repeat(["test", "validation"], [11, 3])
    found = evaluate_cell({"pe": rng.normal(size=14)}, {}, label, split)
    assert all(row.value is not None and row.n == 11 for row in found)
    used = {row.metric: json.loads(row.settings)["n_resamples_used"] for row in found}
    expected = 2000 * (1 - (8 / 11) ** 11 - (3 / 11) ** 11)  # resamples that hold both classes
    assert used["auroc"] == pytest.approx(expected, abs=60)
    assert used["auarc"] == used["ece_mass_20"] == 2000


def test_missing_labels_and_scores_are_left_out_and_counted(cell):
    tested = np.flatnonzero(cell.test)
    cell.label[tested[:3]] = np.nan
    cell.score[tested[2:7]] = np.nan
    rows = cell.rows()
    assert (rows["pe", "auroc"].n, rows["pe", "auroc"].n_missing) == (93, 7)
    assert (rows["pe", "ece_platt"].n, rows["pe", "ece_platt"].n_missing) == (93, 7)
    assert (rows["sgpu", "auroc"].n, rows["sgpu", "auroc"].n_missing) == (97, 3)
    kept = tested[7:]
    assert rows["pe", "auroc"].value == pytest.approx(auroc(cell.score[kept], cell.label[kept]))


def test_a_missing_label_may_be_none(cell):
    cell.label = [None, *cell.label[1:]]
    assert cell.rows()["pe", "auroc"].n == 100  # row 0 is in train


def test_a_missing_probability_or_flag_costs_only_its_own_metrics(cell):
    tested = np.flatnonzero(cell.test)
    flags = (np.abs(cell.p - 0.5) < 0.1).astype(float)
    flags[tested[:4]] = np.nan
    confidence, cell.p = cell.p, np.where(np.arange(300) == tested[0], np.nan, cell.p)
    found = evaluate_cell(
        {"sgpu": confidence}, {"sgpu": cell.p}, cell.label, cell.split, unsafe={"sgpu": flags}, settings=FAST
    )
    n = {row.metric: row.n for row in found}
    assert (n["auroc"], n["brier"], n["unsafe_share"]) == (100, 99, 96)


def test_one_class_leaves_auroc_undefined_and_the_rest_defined(cell):
    cell.label[cell.test] = 1
    rows = cell.rows()
    assert rows["pe", "auroc"].value is rows["pe", "auroc"].lo is rows["pe", "auroc"].hi is None
    assert rows["pe", "auroc"].n == 100
    assert rows["pe", "auarc"].value == pytest.approx(1)


def test_without_validation_rows_a_score_has_no_calibration_but_a_probability_has(cell):
    cell.split = np.where(cell.validation, "train", cell.split)
    rows = cell.rows()
    assert rows["pe", "ece"].value is None
    assert (rows["pe", "ece"].n, rows["pe", "ece"].n_missing) == (0, 100)
    assert rows["pe", "auroc"].value is not None
    assert rows["sgpu", "ece"].value is not None


def test_no_test_rows_are_undefined_not_zero(cell):
    cell.split = np.where(cell.test, "train", cell.split)
    assert {row.value for row in cell.rows().values()} == {None}


def test_settings_say_how_each_value_came_about(cell):
    rows = cell.rows()
    mass = json.loads(rows["pe", "ece_mass_platt"].settings)
    assert mass == {
        "binning": "mass",
        "bins": 10,
        "encoder": "minilm",
        "level": 0.95,
        "mapping": "platt",
        "n_resamples": 20,
        "n_resamples_used": 20,
        "n_validation": 100,
        "seed": 0,
    }


def test_rows_fit_the_metrics_table(cell):
    rows = list(cell.rows().values())
    table = pa.Table.from_pylist([dataclasses.asdict(row) for row in rows], schema=METRICS.schema)
    assert table.num_rows == len(rows)
    assert [field.name for field in dataclasses.fields(rows[0])] == METRICS.schema.names


def test_methods_are_resampled_alike(cell):
    rows = cell.rows()
    # pe orders the rows as sgpu does, so the same resamples give the same bounds.
    assert rows["pe", "auroc"].lo == rows["sgpu", "auroc"].lo


def test_columns_of_another_length_are_named(cell):
    with pytest.raises(DataError, match=r"confidence of 'pe' has shape \(5,\), but the cell has 300 labels"):
        evaluate_cell({"pe": np.zeros(5)}, {}, cell.label, cell.split, settings=FAST)
    with pytest.raises(DataError, match="split has shape"):
        evaluate_cell({}, {}, cell.label, cell.split[:9], settings=FAST)


def test_a_probability_above_one_is_refused(cell):
    cell.p = cell.p * 3
    with pytest.raises(DataError, match=r"outside \[0, 1\]"):
        cell.rows()


@pytest.mark.parametrize(("each", "few"), [(12, True), (30, False)])
def test_a_perfect_auroc_of_few_rows_is_not_said_to_be_certain(each, few):
    label = np.repeat([1.0, 0.0], each)
    rows = evaluate_cell({"sharp": label}, {"sharp": None}, label, np.full(2 * each, "test"))
    auroc = next(row for row in rows if row.metric == "auroc")
    assert (auroc.value, auroc.hi) == (1.0, 1.0)
    assert auroc.lo == pytest.approx(0.025 ** (1 / 12) if few else 1.0)
    assert json.loads(auroc.settings).get("interval") == ("few_rows" if few else None)


def test_chosen_and_first_answers_are_measured_under_names_of_their_own() -> None:
    draw = np.random.default_rng(0)
    p = draw.uniform(size=200)
    chosen, first = (draw.uniform(size=200) < p).astype(float), (draw.uniform(size=200) < 0.5).astype(float)
    chosen[7] = np.nan
    rows = {row.metric: row for row in evaluate_answers("mine", p, chosen, first, np.full(200, "test"))}
    assert set(rows) == {
        "accuracy_answer", "auroc_answer", "auarc_answer", "ece_answer", "brier_answer", "log_loss_answer",
        "accuracy_first_answer",
    }  # fmt: skip
    known = ~np.isnan(chosen)
    assert rows["auroc_answer"].value == pytest.approx(roc_auc_score(chosen[known], p[known]))
    assert rows["accuracy_first_answer"].value == pytest.approx(first.mean())
    assert (rows["accuracy_answer"].n, rows["accuracy_answer"].n_missing) == (199, 1)
