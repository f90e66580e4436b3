"""Constructed cells, and run folders that hold them as a finished study would, for transfer studies.

Spectra come from `bench.constructed`; labels by a map that cells share, or that is turned round in some.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from bench.constructed import constructed_spectra
from sgpu.hashing import derived_seed
from sgpu.provenance import environment
from sgpu.storage import tables
from sgpu.storage.store import Partition, Store
from sgpu.storage.tables import PREDICTIONS, Table
from sgpu.study.benchmark import Cell, Study
from sgpu.transfer.rows import Modality, SourceCell, TransferRows, key_frame

CARD = "smollm2-135m-instruct"
SPLITS = {"train": 0.5, "validation": 0.15, "test": 0.35}


def splits(rows: int) -> list[str]:
    """The split of each of a cell's rows, in blocks."""
    train, validation = (round(rows * SPLITS[name]) for name in ("train", "validation"))
    return ["train"] * train + ["validation"] * validation + ["test"] * (rows - train - validation)


def source_cell(
    model: str, dataset: str, rows: int = 120, *, reverse: bool = False, modality: Modality = "text"
) -> SourceCell:
    """A cell in memory; ``reverse`` calls right what the others call wrong."""
    cell = Cell(model, dataset)
    data = constructed_spectra(rows, seed=derived_seed(model, dataset))
    ids = [f"q{i:04}" for i in range(rows)]
    words = [f"{dataset} {name}?" for name in ids]
    no_hash = pl.lit(None, dtype=pl.String)
    asked = pl.DataFrame({"question_id": ids, "question": words})
    keys = key_frame(cell, asked.with_columns(image_sha256=no_hash, row_sha256=no_hash))
    label = (1 - data.label if reverse else data.label).astype(np.float64)
    largest = {"largest_eigenvalue": data.spectra[:, 0] / data.spectra.shape[1]}
    return SourceCell(
        cell,
        modality,
        TransferRows(keys, data.spectra, label),
        np.asarray(splits(rows), dtype=np.str_),
        largest,
    )


def write_run(
    folder: Path,
    models: Sequence[str],
    datasets: Sequence[str],
    *,
    rows: int = 120,
    reverse: Collection[str] = (),
    vision: bool = False,
    questions: Mapping[str, str] | None = None,
) -> Path:
    """A finished study of constructed cells; every label of the data sets in ``reverse`` is turned round.

    ``questions`` gives data sets a prefix of their questions' texts, so that two can ask the same.
    """
    study = Study.model_validate(
        {
            "name": folder.name,
            "models": [{"name": name, "card": CARD} for name in models],
            "datasets": [{"kind": "worldfacts", "name": name} for name in datasets],
            "methods": ["largest_eigenvalue"],
            "tracking": {"mlflow": "none"},
        }
    )
    store = Store(folder)
    for dataset in datasets:
        _write_questions(store, dataset, rows, vision, (questions or {}).get(dataset, dataset))
        for model in models:
            cell = source_cell(model, dataset, rows, reverse=dataset in reverse)
            _write_cell(store, cell)
    (folder / "run.json").write_text(
        json.dumps({"study": study.model_dump(mode="json"), "run": environment()}, default=str)
    )
    return folder


def _write_questions(store: Store, dataset: str, rows: int, vision: bool, prefix: str) -> None:
    split = splits(rows)
    written = [
        {
            "question_id": f"q{i:04}",
            "question": f"{prefix} q{i:04}?",
            "references": ["x"],
            "split": split[i],
            "position": i,
            "image_sha256": f"{dataset}{i}" if vision else None,
        }
        for i in range(rows)
    ]
    _write(store, tables.QUESTIONS, {"dataset": dataset}, written)


def _write_cell(store: Store, cell: SourceCell) -> None:
    pair = {"model": cell.cell.model, "dataset": cell.cell.dataset}
    n = cell.rows.spectra.shape[1]
    ids = cell.rows.keys["question_id"].to_list()
    label = cell.rows.label.astype(int).tolist()
    base = [{"question_id": name, "status": "ok"} for name in ids]
    answers = [{**row, "answers": ["x"] * n} for row in base]
    judged = [{**row, "label": y, "votes": [y] * n} for row, y in zip(base, label, strict=True)]
    spectra = [
        {**row, "n": n, "eigenvalues": values, "encoder_dtype": "float32"}
        for row, values in zip(base, cell.rows.spectra.tolist(), strict=True)
    ]
    said = [
        {"question_id": name, "split": s, "method": "largest_eigenvalue", "label": y, "confidence": c}
        for name, s, y, c in zip(
            ids, cell.split.tolist(), label, cell.confidence["largest_eigenvalue"].tolist(), strict=True
        )
        if s != "train"
    ]
    _write(store, tables.RESPONSES, pair, answers)
    _write(store, tables.LABELS, {**pair, "judge": "alias"}, judged)
    _write(store, tables.spectra_table(n), {**pair, "encoder": "all-MiniLM-L6-v2"}, spectra)
    _write(store, PREDICTIONS, pair, said)


def _write(store: Store, table: Table, partition: dict[str, str], rows: list[dict[str, Any]]) -> None:
    full = [{name: row.get(name) for name in table.schema.names} for row in rows]
    made = pa.Table.from_pylist(full, table.schema)
    store.write(table, Partition.of(**partition), made, "a" * 12, {})
