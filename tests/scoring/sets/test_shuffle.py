"""Rows come together by their key, in parts of bounded size, whatever stands in them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sgpu.scoring.sets.relations import Rows
from sgpu.scoring.sets.shuffle import MOST_PARTS, part_of, parts_for, shuffle, with_columns
from sgpu.scoring.sets.work_rows import ITEMS_OF_A_FILE, TEXTS, table_of
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import write_rows
from tests.object_store import ObjectStore

SCHEMA = pa.schema(
    [pa.field("key", pa.string()), pa.field("place", pa.int64()), pa.field("text", pa.string())]
)


def rows(n: int, pieces: int = 10) -> list[pa.Table]:
    """Each key in every piece."""
    return [
        pa.table({"key": [f"k{i}" for i in range(n)], "place": [piece] * n, "text": ["x"] * n}, SCHEMA)
        for piece in range(pieces)
    ]


def parts_of(folder: Location, parts: int) -> list[pa.Table]:
    found = [part_of(folder, number, ("key", "place")) for number in range(parts)]
    return [part for part in found if part is not None]


@pytest.mark.parametrize("parts", [1, 7, MOST_PARTS])
def test_all_rows_of_a_key_are_in_one_part_in_their_order(tmp_path: Path, parts: int) -> None:
    folder = Location.of(tmp_path / "parts")
    shuffle(folder, Rows(SCHEMA, rows(300)), "key", parts)
    found = parts_of(folder, parts)
    assert sum(map(len, found)) == 3000 and len(found) > 0.4 * min(parts, 300)
    keys = [set(part["key"].to_pylist()) for part in found]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 300
    for part in found:
        assert part["place"].to_pylist() == [*range(10)] * (len(part) // 10)


def test_what_a_killed_run_left_is_gone(tmp_path: Path) -> None:
    folder = Location.of(tmp_path / "parts")
    for n in (50, 3):
        shuffle(folder, Rows(SCHEMA, rows(n)), "key", 4)
    assert sum(map(len, parts_of(folder, 4))) == 30


def test_the_same_in_object_storage(object_store: ObjectStore) -> None:
    folder = Location.of(object_store.uri("work/parts"))
    shuffle(folder, Rows(SCHEMA, rows(20)), "key", 3)
    assert sum(map(len, parts_of(folder, 3))) == 200


def test_a_part_holds_so_many_rows_and_characters_and_there_are_not_too_many() -> None:
    given = [(0, 0), (100_000, 10), (10, 2**30), (10**12, 0)]
    assert [parts_for(*one) for one in given] == [1, 3, 17, MOST_PARTS]


def test_texts_come_from_the_files_by_the_numbers_of_their_rows(tmp_path: Path) -> None:
    folder = Location.of(tmp_path)
    for name in "ab":
        answers = [{"kind": 0, "texts": [f"{name}{row}"]} for row in range(5)]
        write_rows(folder / name, table_of(answers))
    items = [[-2, -1, 0, 3], [4, ITEMS_OF_A_FILE, ITEMS_OF_A_FILE + 2]]
    found = with_columns([pa.table({"item": piece}) for piece in items], [folder / "a", folder / "b"], TEXTS)
    texts = [row["texts"] for piece in found for row in piece.to_pylist()]
    assert texts == [None, None, ["a0"], ["a3"], ["a4"], ["b0"], ["b2"]]
