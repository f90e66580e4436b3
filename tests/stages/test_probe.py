"""Probes by the training job: the rows name published states, and the fit is that of the probe itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from sgpu.hidden.rows import Wanted
from sgpu.methods.base import METHODS
from sgpu.probes.base import Probe, ProbeMethod, ProbeReport
from sgpu.probes.saplma import METHOD as SAPLMA
from sgpu.probes.saplma import Saplma
from sgpu.probes.sep import METHOD as SEP
from sgpu.probes.sep import Sep
from sgpu.probes.states import ProbeRows
from sgpu.stages.cell_frame import CellInputs
from sgpu.stages.evaluate import predict
from sgpu.stages.fit import fit_cells
from sgpu.stages.fit_rows import probe_trainer, write_probe_rows
from sgpu.stages.train_job import FitResult, FitTask, run_train_job
from sgpu.storage import tables
from sgpu.storage.store import Partition, Published, Store
from tests.stages.quiet_runs import quiet_run, table_of

LAYERS, DIM, N = 3, 4, 2
PARTITION = Partition.of(model="m", dataset="d")


def states_table(states: np.ndarray) -> pa.Table:
    """The hidden_states table of (Q, LAYERS, DIM) states at every position."""
    schema = tables.hidden_states_table(1, N, DIM, LAYERS).schema
    rows = [
        {
            "question_id": f"q{i}",
            "status": "ok",
            "error": None,
            "n_missing": 0,
            "layers": [1],
            "states": np.zeros(N * DIM, np.float16),
            "probe_layers": list(range(LAYERS)),
            **{f"probe_{position}": row.reshape(-1) for position in tables.PROBE_POSITIONS},
        }
        for i, row in enumerate(states.astype(np.float16))
    ]
    return pa.Table.from_pylist(rows, schema=schema)


@pytest.fixture
def frame() -> pl.DataFrame:
    """60 training, 20 validation questions; one training label is missing."""
    label = np.random.default_rng(1).integers(0, 2, 80)
    split = ["train"] * 60 + ["validation"] * 20
    made = pl.DataFrame({"question_id": [f"q{i}" for i in range(80)], "split": split, "label": label})
    labelled = pl.when(pl.col("question_id") != "q3").then("label").alias("label")
    return made.with_columns(labelled, no_answer=pl.lit(None, pl.String))


@pytest.fixture
def states(frame: pl.DataFrame) -> np.ndarray:
    """(80, LAYERS, DIM) of which the middle layer tells the label."""
    made = np.random.default_rng(0).normal(size=(80, LAYERS, DIM))
    made[:, 1, 0] += 3 * frame["label"].fill_null(0).to_numpy()
    return made


@pytest.fixture
def hidden(tmp_path: Path, states: np.ndarray) -> Published:
    wanted = Wanted([1], N, DIM, [0, 1, 2], ["last", "slt", "tbg"])
    settings = {"n_layers": 2, "wanted": asdict(wanted)}
    table = tables.hidden_states_table(1, N, DIM, LAYERS)
    return Store(tmp_path).write(table, PARTITION, states_table(states), "a" * 64, {"settings": settings})


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """The file that names the rows of a fit."""
    return tmp_path / "fits" / "m" / "rows.json"


def fit_alone(task: FitTask) -> FitResult:
    (result,) = run_train_job([task], Path(task.rows).parents[1], 0)
    return result


def inputs_with(hidden: Published) -> CellInputs:
    return CellInputs(hidden, hidden, hidden, hidden, "alias", "encoder", N, None, hidden)


def test_the_job_fits_what_the_probe_fits_alone(
    rows: Path, hidden: Published, frame: pl.DataFrame, states: np.ndarray
) -> None:
    count = write_probe_rows(rows, Store(rows.parents[2]), inputs_with(hidden), frame, SAPLMA, "last")
    assert count == 59  # without the question that has no label
    result = fit_alone(FitTask("m/d/saplma", rows, {}, 7, probe_trainer(SAPLMA)))
    assert result.folder is not None, result.problem
    kept = states.astype(np.float16)
    label = frame["label"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    alone = Saplma(seed=7).fit(kept[:60], label[:60], kept[60:], label[60:])
    assert alone.report.layer == 1
    assert np.array_equal(Saplma.load(result.folder).predict_proba(kept), alone.predict_proba(kept))


def test_sep_learns_entropies_of_clusters_at_the_position_that_is_asked(
    rows: Path, hidden: Published, frame: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    entropy = np.where(frame["label"].fill_null(0).to_numpy() == 1, 0.0, np.log(2))
    monkeypatch.setattr("sgpu.stages.fit_rows._targets", lambda *_: entropy)
    write_probe_rows(rows, Store(rows.parents[2]), inputs_with(hidden), frame, SEP, "tbg")
    result = fit_alone(FitTask("m/d/sep", rows, {"at_least": 1}, 0, probe_trainer(SEP)))
    assert result.folder is not None, result.problem
    probe = Sep.load(result.folder)
    assert probe.settings.position == "tbg" and probe.report.first_layer == 1


def test_states_that_changed_since_are_a_problem_and_not_fitted(
    tmp_path: Path, rows: Path, hidden: Published, frame: pl.DataFrame, states: np.ndarray
) -> None:
    write_probe_rows(rows, Store(rows.parents[2]), inputs_with(hidden), frame, SAPLMA, "last")
    table = tables.hidden_states_table(1, N, DIM, LAYERS)
    Store(tmp_path).write(
        table, PARTITION, states_table(states + 1), "b" * 64, {"settings": hidden.manifest["settings"]}
    )
    result = fit_alone(FitTask("m/d/saplma", rows, {}, 0, probe_trainer(SAPLMA)))
    assert result.folder is None and "have changed" in str(result.problem)


def test_rows_are_the_same_wherever_the_study_lies(
    tmp_path: Path, rows: Path, hidden: Published, frame: pl.DataFrame
) -> None:
    write_probe_rows(rows, Store(rows.parents[2]), inputs_with(hidden), frame, SAPLMA, "last")
    assert str(tmp_path) not in rows.read_text()


@dataclass(frozen=True)
class NearestSettings:
    """No settings of its own but the seed of the study."""

    seed: int = 0


class NearestMean(Probe[ProbeReport]):
    """The nearer of two class means on the first layer."""

    name, described, report_type = "nearest", "a nearest mean", ProbeReport
    layers = range(1, 2)

    def __init__(self, seed: int = 0) -> None:
        super().__init__(NearestSettings(seed))

    def fit(self, hidden: Any, target: Any, validation_hidden: Any, validation_target: Any) -> NearestMean:
        rows = ProbeRows.of(hidden, target)
        validation = ProbeRows.of(validation_hidden, validation_target)
        features = rows.layers(1, 2).astype(np.float64)
        self._weights = {f"mean{label}": features[rows.target == label].mean(axis=0) for label in (0, 1)}
        self._report = ProbeReport.of(rows, validation, [None] * LAYERS)
        return self

    def log_odds(self, features: Any) -> Any:
        wrong, right = (((features - self._weights[f"mean{label}"]) ** 2).sum(axis=1) for label in (0, 1))
        return wrong - right


METHOD = ProbeMethod(
    name="nearest_mean", title="Nearest mean", probe=NearestMean, position="tbg", gives_probability=True
)


def test_a_trained_method_that_only_its_file_and_its_entry_know_is_fitted_and_asked(
    tmp_path: Path, hidden: Published, frame: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS._entries, "nearest_mean", f"{__name__}:METHOD")
    study = {
        "models": [{"name": "m", "card": "smollm2-135m-instruct"}],
        "datasets": [{"kind": "worldfacts", "name": "d"}],
        "methods": ["nearest_mean"],
        "sampling": {"n": N},
        "resources": {"fitters": 0},
        "tracking": {"mlflow": "none"},
    }
    run = quiet_run(study, tmp_path)
    ids, pair = frame["question_id"].to_list(), {"model": "m", "dataset": "d"}
    labels = frame["label"].to_list()
    split = ["train"] * 60 + ["validation"] * 10 + ["test"] * 10
    rows: dict[tables.Table, tuple[Partition, dict[str, list[Any]]]] = {
        tables.QUESTIONS: (
            Partition.of(dataset="d"),
            {"question": ["?"] * 80, "references": [["x"]] * 80, "split": split, "position": [*range(80)]},
        ),
        tables.RESPONSES: (Partition.of(**pair), {"answers": [["x"] * N] * 80}),
        tables.LABELS: (Partition.of(**pair, judge="alias"), {"label": labels}),
        tables.spectra_table(N): (
            Partition.of(**pair, encoder="all-MiniLM-L6-v2"),
            {"eigenvalues": [[2, 0]] * 80},
        ),
    }
    for table, (partition, columns) in rows.items():
        columns |= {"question_id": ids, "status": ["ok"] * 80}
        known = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        run.store.write(table, partition, table_of(table.schema, known), "a" * 12, {"n": N})
    (cell,) = run.study.cells()
    (fit,) = fit_cells(run, [cell])
    assert fit.problem is None and fit.folder is not None
    outcome = predict(run, cell)
    made = pl.DataFrame(pl.from_arrow(outcome.published.read())).sort("question_id")
    assert set(made["method"]) == {"nearest_mean"} and set(made["fit_id"]) == {fit.fit_id}
    said = (made["probability"] > 0.5).cast(pl.Int8) == made["label"]
    assert made["confidence"].equals(made["probability"]) and said.mean() > 0.8  # type: ignore[operator]
    assert outcome.published.manifest["settings"]["nearest_mean"] == {"position": "tbg", "layers": [1]}
