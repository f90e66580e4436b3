"""Cells share jobs and engines, whatever their number, and get the rows that they get alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu.errors import HeldError
from sgpu.models.cards import ModelCard
from sgpu.runtime.session import one_ray_session
from sgpu.stages.encode import plan_encoding
from sgpu.stages.judge import plan_judging
from sgpu.stages.levels import run_levels
from sgpu.stages.run import Run
from sgpu.storage.store import Partition
from sgpu.storage.tables import QUESTIONS, RESPONSES, spectra_table
from sgpu.study import models
from tests.engines.tiny_llama import build
from tests.stages.quiet_runs import do, quiet_run, table_of

ROWS = 5
ONE_EACH = {"sample": 1, "judge": 1, "encode": 1}


@pytest.fixture(scope="module", autouse=True)
def one_ray() -> Iterator[None]:
    with one_ray_session():
        yield


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelCard:
    card = ModelCard(
        name="tiny", source=str(build(tmp_path / "tiny")), licence="MIT", memory_gib=0.1,
        engine="transformers", dtype="float32", max_model_len=1024,
    )  # fmt: skip
    monkeypatch.setitem(models.MODELS, card.name, card)
    return card


def prepared(out: Path, datasets: int, **resources: Any) -> Run:
    """A run of one model whose questions are there."""
    names = [f"d{number}" for number in range(datasets)]
    study = {
        "models": [{"name": "m", "card": "tiny"}],
        "datasets": [{"kind": "worldfacts", "name": name} for name in names],
        "sampling": {"n": 3, "max_tokens": 4, "prompt": "{question}"},
        "methods": ["largest_eigenvalue"],
        "resources": {"device": "cpu", "actors": ONE_EACH, **resources},
        "tracking": {"mlflow": "none"},
    }
    run = quiet_run(study, out)
    for name in names:
        rows = [
            {
                "question_id": f"q{i}",
                "question": f"Which {i}?",
                "references": ["x"],
                "split": "test",
                "position": i,
            }
            for i in range(ROWS)
        ]
        key = name.ljust(12, "0")
        run.store.write(QUESTIONS, Partition.of(dataset=name), table_of(QUESTIONS.schema, rows), key, {})
    return run


def run_all(run: Run) -> None:
    run_levels(run, run.study.cells(), lambda: None)


def test_jobs_and_engine_starts_are_as_many_for_any_number_of_data_sets(
    tmp_path: Path, card: ModelCard
) -> None:
    for datasets in (3, 12):
        run = prepared(tmp_path / f"{datasets}", datasets)
        run_all(run)
        pools = [(pool.stage, pool.stages, pool.rows, pool.starts, pool.jobs) for pool in run.pools]
        rows = datasets * ROWS
        assert pools == [
            (name, datasets, rows, starts, 1) for name, starts in (("sample", 1), ("judge", 0), ("encode", 1))
        ]
        for cell in run.study.cells():
            ids = run.responses(cell).read(["question_id"])["question_id"].to_pylist()
            assert ids == [f"q{i}" for i in range(ROWS)]


def test_a_cell_gets_the_rows_that_it_gets_alone(tmp_path: Path, card: ModelCard) -> None:
    together, alone = prepared(tmp_path / "together", 2), prepared(tmp_path / "alone", 2)
    run_all(together)
    for cell in together.study.cells():
        answers = together.responses(cell)
        alone.store.write(RESPONSES, cell.partition(), answers.read(), answers.fingerprint, {})
        labels, spectra = do(plan_judging, alone, cell), do(plan_encoding, alone, cell)
        assert labels is not None
        for outcome, name in ((labels, "labels"), (spectra, spectra_table(3).name)):
            pooled = together.store.require(name, outcome.partition)
            assert pooled.read() == outcome.published.read()
            assert pooled.fingerprint == outcome.published.fingerprint


def test_a_second_run_has_nothing_to_do(tmp_path: Path, card: ModelCard) -> None:
    run_all(prepared(tmp_path / "out", 2))
    again = prepared(tmp_path / "out", 2)
    run_all(again)
    assert again.pools == [] and all(outcome.reused for outcome in again.outcomes)


def test_a_run_that_is_not_ours_any_more_ends_between_two_levels(tmp_path: Path, card: ModelCard) -> None:
    def lost() -> None:
        raise HeldError("another run has the folder")

    run = prepared(tmp_path / "out", 1)
    with pytest.raises(HeldError):
        run_levels(run, run.study.cells(), lost)
    assert [outcome.stage for outcome in run.outcomes] == ["sample"]
