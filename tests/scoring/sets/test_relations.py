"""Queries see what they are given and nothing else, and need no more memory than they are allowed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from sgpu.scoring.sets import relations
from sgpu.scoring.sets.relations import Relations, Rows


@pytest.mark.parametrize(
    "statement",
    [
        "FROM read_csv('{file}')",
        "FROM '{file}'",
        "COPY (SELECT 1) TO '{file}.out'",
        "ATTACH '{file}'",
        "INSTALL httpfs",
        "LOAD '{file}'",
        "SET enable_external_access = true",
        "SET memory_limit = '1TB'",
    ],
)
def test_nothing_of_the_outside_is_in_reach(tmp_path: Path, statement: str) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with Relations(tmp_path) as opened, pytest.raises(duckdb.Error):
        opened._connection.execute(statement.format(file=tmp_path / "a.csv"))
    assert not (tmp_path / "a.csv.out").exists()


def test_variables_of_the_caller_are_no_tables(tmp_path: Path) -> None:
    here = pa.table({"a": [1]})
    with Relations(tmp_path) as opened, pytest.raises(duckdb.Error, match="here does not exist"):
        opened._connection.execute("FROM here")
    assert len(here) == 1


def test_a_query_beyond_the_memory_spills_into_the_folder_and_leaves_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relations, "MEMORY", "64MB")
    n = 400_000
    spilled = False
    with Relations(tmp_path) as opened:
        opened.make("tables")
        schema = opened.schema("items")

        def parts() -> Iterator[pa.Table]:
            for start in range(0, n, 10_000):
                numbers = range(start, start + 10_000)
                given = {"item": numbers, "content": [f"{number:0128d}" for number in numbers]}
                given |= {name: [0] * 10_000 for name in ("kind", "split", "line")}
                given |= {"request_id": [f"{number * 7919 % n:06d}" for number in numbers]}
                columns = [pa.array(given.get(field.name, [None] * 10_000), field.type) for field in schema]
                yield pa.Table.from_arrays(columns, schema=schema)

        opened.add("items", Rows(schema, parts()))
        opened.make("settled")
        spilled = any(file.is_file() for file in tmp_path.rglob("*"))
        assert list(opened.rows("counts")) == [{"fate": "scored", "rows": n}]
    assert spilled
    assert list(tmp_path.iterdir()) == []
