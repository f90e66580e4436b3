"""Probes by the training job: the rows name published states, and the fit is that of the probe itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from sgpu.probes.saplma import Saplma
from sgpu.probes.sep import Sep
from sgpu.runtime.train_job import FitTask, run_train_job
from sgpu.stages.cell_frame import CellInputs
from sgpu.stages.probe import write_probe_rows
from sgpu.storage import tables
from sgpu.storage.store import Partition, Published, Store

LAYERS, DIM, N = 3, 4, 2
PARTITION = Partition.of(model="m", dataset="d")


def states_table(states: np.ndarray) -> pa.Table:
    """The hidden_states table of (Q, LAYERS, DIM) states at every position."""
    schema = tables.hidden_states(1, N, DIM, LAYERS).schema
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
    return made.with_columns(pl.when(pl.col("question_id") != "q3").then("label").alias("label"))


@pytest.fixture
def states(frame: pl.DataFrame) -> np.ndarray:
    """(80, LAYERS, DIM) of which the middle layer tells the label."""
    made = np.random.default_rng(0).normal(size=(80, LAYERS, DIM))
    made[:, 1, 0] += 3 * frame["label"].fill_null(0).to_numpy()
    return made


@pytest.fixture
def hidden(tmp_path: Path, states: np.ndarray) -> Published:
    settings = {"n_layers": 2, "layers": [1], "n": N, "dim": DIM, "probe_layers": [0, 1, 2],
                "positions": ["last", "slt", "tbg"]}  # fmt: skip
    table = tables.hidden_states(1, N, DIM, LAYERS)
    return Store(tmp_path).write(table, PARTITION, states_table(states), "a" * 64, {"settings": settings})


def inputs_with(hidden: Published) -> CellInputs:
    return CellInputs(hidden, hidden, hidden, hidden, "alias", "encoder", N, None, hidden)


def test_the_job_fits_what_the_probe_fits_alone(
    tmp_path: Path, hidden: Published, frame: pl.DataFrame, states: np.ndarray
) -> None:
    rows = tmp_path / "fits" / "m" / "rows.json"
    count = write_probe_rows(rows, Store(tmp_path), inputs_with(hidden), frame, "saplma", "last")
    assert count == 59  # without the question that has no label
    (result,) = run_train_job([FitTask("m/d/saplma", rows, {}, 7, "saplma")], tmp_path / "fits", 0)
    assert result.folder is not None, result.problem
    kept = states.astype(np.float16)
    label = frame["label"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    alone = Saplma(seed=7).fit(kept[:60], label[:60], kept[60:], label[60:])
    assert alone.report.layer == 1
    assert np.array_equal(Saplma.load(result.folder).predict_proba(kept), alone.predict_proba(kept))


def test_sep_learns_entropies_of_clusters_at_the_position_that_is_asked(
    tmp_path: Path, hidden: Published, frame: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    entropy = np.where(frame["label"].fill_null(0).to_numpy() == 1, 0.0, np.log(2))
    monkeypatch.setattr("sgpu.stages.probe._targets", lambda *_: entropy)
    rows = tmp_path / "fits" / "m" / "rows.json"
    write_probe_rows(rows, Store(tmp_path), inputs_with(hidden), frame, "sep", "tbg")
    (result,) = run_train_job([FitTask("m/d/sep", rows, {"at_least": 1}, 0, "sep")], tmp_path / "fits", 0)
    assert result.folder is not None, result.problem
    probe = Sep.load(result.folder)
    assert probe.settings.position == "tbg" and probe.report.first_layer == 1


def test_states_that_changed_since_are_a_problem_and_not_fitted(
    tmp_path: Path, hidden: Published, frame: pl.DataFrame, states: np.ndarray
) -> None:
    rows = tmp_path / "fits" / "m" / "rows.json"
    write_probe_rows(rows, Store(tmp_path), inputs_with(hidden), frame, "saplma", "last")
    table = tables.hidden_states(1, N, DIM, LAYERS)
    Store(tmp_path).write(
        table, PARTITION, states_table(states + 1), "b" * 64, {"settings": hidden.manifest["settings"]}
    )
    (result,) = run_train_job([FitTask("m/d/saplma", rows, {}, 0, "saplma")], tmp_path / "fits", 0)
    assert result.folder is None and "have changed" in str(result.problem)


def test_rows_are_the_same_wherever_the_study_lies(
    tmp_path: Path, hidden: Published, frame: pl.DataFrame
) -> None:
    rows = tmp_path / "fits" / "m" / "rows.json"
    write_probe_rows(rows, Store(tmp_path), inputs_with(hidden), frame, "saplma", "last")
    assert str(tmp_path) not in rows.read_text()
