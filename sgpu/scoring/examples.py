"""The first quarantined rows of each reason, for the page of the day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from sgpu.storage.location import Location
from sgpu.storage.parquet_files import opened

SHOWN = 5
COLUMNS = ["reason", "file", "line", "detail"]
Place = tuple[str, int]


def examples(files: Iterable[Location], shown: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
    """By reason the first ``shown`` rows by file and line, of Parquet files that are read in pieces."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        with opened(file) as parquet:
            for batch in parquet.iter_batches(columns=COLUMNS):
                for row in _first(pa.table(batch), shown):
                    kept = [*found.get(row["reason"], []), row]
                    found[row["reason"]] = sorted(kept, key=_place)[:shown]
    return {
        reason: [{name: row[name] for name in COLUMNS[1:]} for row in rows]
        for reason, rows in sorted(found.items())
    }


def _first(rows: pa.Table, shown: int) -> list[dict[str, Any]]:
    """Of one piece at most ``shown`` rows of each reason, so that few of them become Python objects."""
    ordered = rows.sort_by([("file", "ascending"), ("line", "ascending")])
    chosen: list[dict[str, Any]] = []
    for reason in ordered["reason"].unique():
        own = ordered.filter(pa.compute.equal(ordered["reason"], reason))
        chosen += own.slice(0, shown).to_pylist()
    return chosen


def _place(row: Mapping[str, Any]) -> Place:
    """A fault of a whole file stands before its lines."""
    return row["file"], -1 if row["line"] is None else row["line"]
