"""The table of what people say of answers: added to by any number of runs at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sgpu.scoring.labels import holds, labels_of, take_in
from sgpu.storage.location import Location
from tests.object_store import ObjectStore


def said(tmp_path: Path, name: str, *rows: dict[str, Any]) -> str:
    (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(tmp_path / name)


def label(request_id: str, value: int, model: str | None = None) -> dict[str, Any]:
    return {"request_id": request_id, "label": value, "model": model}


def last(out: Location, request_id: str, model: str) -> int | None:
    found = holds(labels_of(out).said(pa.array([request_id])).get(request_id, ()), model)
    return found[-1] if found else None


def test_files_that_are_taken_in_at_once_are_all_in_and_each_once(tmp_path: Path) -> None:
    out = Location.of(tmp_path / "out")
    files = [said(tmp_path, f"{i}.jsonl", label(f"r{i}", i % 2), label("shared", 1)) for i in range(4)] * 2
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda file: take_in(out, file), files))
    assert sum(one is not None for one in taken) == 4
    rows = labels_of(out).rows
    assert sorted(rows["request_id"].to_pylist()) == ["r0", "r1", "r2", "r3", "shared"]
    assert len(rows["time"].unique()) == 4


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([label("x", 1)], (1, 1)),
        ([label("x", 1), label("x", 0, "b")], (1, 0)),
        ([label("x", 0, "b"), label("x", 1)], (1, 0)),  # of one file the model that is named, in any order
        ([label("x", 0, "b")], (None, 0)),
    ],
)
def test_a_label_without_a_model_holds_for_every_model(
    tmp_path: Path, rows: list[dict[str, Any]], expected: tuple[int | None, int | None]
) -> None:
    out = Location.of(tmp_path / "out")
    take_in(out, said(tmp_path, "a.jsonl", *rows))
    assert (last(out, "x", "a"), last(out, "x", "b")) == expected


def test_a_later_word_on_every_model_counts_more_than_an_earlier_one_on_one(tmp_path: Path) -> None:
    out = Location.of(tmp_path / "out")
    take_in(out, said(tmp_path, "a.jsonl", label("x", 1), label("x", 0, "b")))
    taken = take_in(out, said(tmp_path, "b.jsonl", label("x", 1)))
    assert taken is not None and taken.new == 1
    assert (last(out, "x", "a"), last(out, "x", "b")) == (1, 1)


def test_labels_are_kept_in_object_storage(tmp_path: Path, object_store: ObjectStore) -> None:
    out = Location.of(object_store.uri("scores"))
    take_in(out, said(tmp_path, "a.jsonl", label("x", 1)))
    assert take_in(out, said(tmp_path, "a.jsonl", label("x", 1))) is None
    assert last(out, "x", "a") == 1
