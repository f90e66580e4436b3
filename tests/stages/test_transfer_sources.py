from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.constructed_cells import source_cell as constructed
from bench.constructed_cells import write_run
from sgpu.errors import DataError, UsageError
from sgpu.stages.transfer_sources import common_n, finished_cells, source_cell
from sgpu.storage import tables
from sgpu.storage.store import Partition, Store
from sgpu.study.transfer import TransferStudy


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two finished cells of 20 questions and answers."""
    return write_run(tmp_path / "run", ["one", "two"], ["facts"], rows=20)


def study(*runs: dict[str, Any], **changed: Any) -> TransferStudy:
    return TransferStudy.model_validate({"runs": list(runs), **changed})


def publish(store: Store, table: tables.Table, where: Partition, rows: list[dict[str, Any]]) -> None:
    store.write(table, where, pa.Table.from_pylist(rows, table.schema), "b" * 12, {})


def test_rows_are_those_that_the_run_has_published(tmp_path: Path) -> None:
    write_run(tmp_path / "run", ["one", "two"], ["facts"], rows=40)
    one, _ = finished_cells(study({"path": tmp_path / "run"}))
    found, expected = source_cell(one, 20), constructed("one", "facts", 40)
    order = np.argsort(found.rows.keys["question_id"].to_numpy())
    assert np.allclose(found.rows.spectra[order], expected.rows.spectra)
    assert (found.rows.label[order] == expected.rows.label).all()
    assert found.rows.keys["text_sha256"][order.tolist()].equals(expected.rows.keys["text_sha256"])
    test = found.split == "test"
    largest = found.rows.spectra[test, 0] / 20
    assert np.allclose(found.confidence["largest_eigenvalue"][test], largest)


def test_questions_with_images_make_a_vision_cell_unless_the_study_says_otherwise(tmp_path: Path) -> None:
    write_run(tmp_path / "run", ["one", "two"], ["photos"], rows=20, vision=True)
    seen = finished_cells(study({"path": tmp_path / "run"}))
    said = finished_cells(study({"path": tmp_path / "run", "modality": "text"}))
    assert [source_cell(cells[0], 20).modality for cells in (seen, said)] == ["vision", "text"]


def test_some_cells_of_a_run_can_be_chosen(tmp_path: Path) -> None:
    write_run(tmp_path / "run", ["one", "two"], ["facts", "trivia"], rows=20)
    chosen = ["two/facts", "one/trivia"]
    assert [str(c.cell) for c in finished_cells(study({"path": tmp_path / "run", "cells": chosen}))] == chosen


def test_a_cell_that_the_run_does_not_have_is_a_usage_error_that_names_those_it_has(run: Path) -> None:
    with pytest.raises(UsageError, match=r"no cell one/fact; it has one/facts, two/facts"):
        finished_cells(study({"path": run, "cells": ["one/fact"]}))


def test_a_folder_without_a_finished_study_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not hold a finished study"):
        finished_cells(study({"path": tmp_path}))


def test_a_run_whose_model_is_not_known_here_is_read_all_the_same(run: Path) -> None:
    facts = run / "run.json"
    kept = json.loads(facts.read_text())
    kept["study"]["models"][0]["card"] = "a-model-of-yesterday"
    kept["study"]["methods"] = ["sgpu", "saplma", "semantic_entropy"]
    facts.write_text(json.dumps(kept))
    assert len(finished_cells(study({"path": run}))) == 2


def test_a_run_that_lacks_a_table_is_a_usage_error(run: Path) -> None:
    facts = run / "run.json"
    kept = json.loads(facts.read_text())
    kept["study"]["models"].append({**kept["study"]["models"][0], "name": "later"})
    facts.write_text(json.dumps(kept))
    with pytest.raises(UsageError, match="is not finished: table responses"):
        finished_cells(study({"path": run}))


def test_a_cell_in_two_runs_is_a_usage_error(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / name, ["one"], ["facts"], rows=20) for name in ("a", "b")]
    with pytest.raises(UsageError, match="cell one/facts stands in"):
        finished_cells(study(*({"path": path} for path in paths)))


def test_one_cell_has_nothing_to_transfer_to(tmp_path: Path) -> None:
    write_run(tmp_path / "run", ["one"], ["facts"], rows=20)
    with pytest.raises(UsageError, match="at least 2"):
        finished_cells(study({"path": tmp_path / "run"}))


def test_missing_labels_and_spectra_stay_missing_and_are_told(run: Path) -> None:
    store, n = Store(run), 20
    where = Partition.of(model="one", dataset="facts", judge="alias")
    labels = store.require("labels", where).read().to_pylist()
    labels[3] |= {"label": None, "votes": [None] * n}
    publish(store, tables.LABELS, where, labels)
    where = Partition.of(model="one", dataset="facts", encoder="all-MiniLM-L6-v2")
    spectra = store.require("spectra", where).read().to_pylist()
    spectra[4] |= {"status": "failed", "eigenvalues": None}
    publish(store, tables.spectra_table(n), where, spectra)
    found = source_cell(finished_cells(study({"path": run}))[0], n)
    ids = found.rows.keys["question_id"].to_numpy()
    assert ids[np.isnan(found.rows.label)].tolist() == ["q0003"]
    assert ids[~found.rows.has_spectrum].tolist() == ["q0004"]
    assert "1 of 20 questions have no spectrum and 1 no label" in found.notes[0]


def with_prefixes(path: Path, prefixes: list[int]) -> None:
    """Publish spectra of the first answers too: here the leading eigenvalues, which are known again."""
    store = Store(path)
    where = Partition.of(model="one", dataset="facts", encoder="all-MiniLM-L6-v2")
    rows = store.require("spectra", where).read().to_pylist()
    for row in rows:
        row |= {"prefixes": prefixes, "prefix_eigenvalues": [row["eigenvalues"][:n] for n in prefixes]}
    publish(store, tables.spectra_table(20), where, rows)


def test_spectra_are_cut_to_the_answers_that_all_cells_have(run: Path) -> None:
    with_prefixes(run, [5, 10])
    asked = study({"path": run}, n=10)
    found = finished_cells(asked)
    assert common_n(asked, found) == 10
    cut = source_cell(found[0], 10).rows
    whole = source_cell(found[0], 20).rows
    assert np.allclose(cut.spectra, whole.spectra[:, :10])


def test_a_cell_without_spectra_of_that_many_answers_says_how_to_get_them(run: Path) -> None:
    found = finished_cells(study({"path": run}))
    with pytest.raises(DataError, match=r"Add 10 to `sensitivity.n_answers`"):
        source_cell(found[0], 10)


def test_more_answers_than_a_cell_has_are_a_usage_error(run: Path) -> None:
    asked = study({"path": run}, n=21)
    with pytest.raises(UsageError, match="`n` is 21, but one/facts has 20"):
        common_n(asked, finished_cells(asked))
