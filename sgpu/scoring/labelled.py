"""A scored day with what is said of its requests by now: no log is read, and nothing is scored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.scoring.buckets import Bucket, place_of
from sgpu.scoring.labels import Labels, holds
from sgpu.scoring.sets.committed import base_of, read_columns
from sgpu.scoring.staging import table_folder
from sgpu.scoring.tables import DATE, SCORES
from sgpu.scoring.work_files import read_json, write_json
from sgpu.storage.delta_log import active_files, open_table
from sgpu.storage.location import Location
from sgpu.watch import Sketch, folded, merge, sketch_of
from sgpu.watch.history import summary_place
from sgpu.watch.sketch import MOST_GROUPS

KEY = ("request_id", "model", "label")
# Beside a summary: up to which label the ids of its day were looked at since.
LOOKED = "labels.json"


@dataclass(frozen=True)
class LabelState:
    """What a day was judged with: the labels ``until`` a moment say something of so many of its requests.

    ``conflicts``: requests of which 0 and 1 were said; the last counts. ``sha256``: of requests and labels.
    """

    until: int = 0
    requests: int = 0
    conflicts: int = 0
    sha256: str = hashlib.sha256().hexdigest()

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> LabelState:
        """Of a day's summary; those of before there was a table have none."""
        content = summary.get("labels") or {}
        return cls(**{name: content[name] for name in cls.__dataclass_fields__ if name in content})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def news(out: Location, summary: Mapping[str, Any], labels: Labels) -> LabelState | None:
    """What is said now of the day of a summary; None if it is what it was judged with.

    That nothing is new is written down, so that the ids are not read again before more labels come.
    """
    day, before = date.fromisoformat(summary["date"]), LabelState.of(summary)
    looked = {"run_key": summary["run_key"], "sha256": before.sha256, "until": labels.until}
    place = summary_place(out, day).parent / LOOKED
    if labels.until == before.until or read_json(place) == looked:
        return None
    found = state_of(out, day, labels)
    if found.sha256 != before.sha256:
        return found
    write_json(place, looked)
    return None


def state_of(out: Location, day: date, labels: Labels) -> LabelState:
    """Reads the ids of the day alone."""
    lines, conflicts = [], 0
    for rows in _day(out, day, KEY) if labels.until else ():
        for request_id, model, own, said in _told(rows, labels):
            lines.append(f"{said[-1]} {model} {request_id}")
            conflicts += len({*said} if own is None else {own, *said}) > 1
    text = "\n".join(sorted(lines)).encode("utf-8", "surrogatepass")
    return LabelState(labels.until, len(lines), conflicts, hashlib.sha256(text).hexdigest())


def sketch_with(out: Location, day: date, labels: Labels, history: Sequence[Sketch]) -> Sketch:
    """The sketch of all committed rows of the day, each with its last label; bounded as `folded` does."""
    sketch = Sketch()
    for rows in _day(out, day, SCORES.schema.names):
        sketch = merge([sketch, sketch_of(_labelled(rows, labels))])
        if len(sketch.groups) > MOST_GROUPS:
            sketch = folded(sketch, history)
    return folded(sketch, history)


def days_of(out: Location, labels: Labels, after: int) -> tuple[list[date], int]:
    """The days on which the requests stand of which something was said ``after`` a moment, and of how many
    labels the request stands nowhere. Reads ids and models of all files that can hold one of them.
    """
    moments = labels.rows["time"].cast(pa.int64())
    late = labels.rows.filter(pc.greater(moments, after))
    wanted = set(zip(late["request_id"].to_pylist(), late["model"].to_pylist(), strict=True))
    ids = late["request_id"].unique()
    places = {place_of(one) for one in ids.to_pylist()}
    root = table_folder(out, SCORES)
    delta = open_table(root) if wanted else None
    there, days = set(), set()
    for partition, file in [] if delta is None else active_files(root, delta):
        written = Bucket.in_name(file.name)
        if written is not None and not any(written.holds(place) for place in places):
            continue
        rows = read_columns(file, SCORES.schema, ("request_id", "model"))
        rows = rows.filter(pc.is_in(rows["request_id"], value_set=ids))
        for request_id, model in zip(rows["request_id"].to_pylist(), rows["model"].to_pylist(), strict=True):
            if about := {(request_id, None), (request_id, model)} & wanted:
                there |= about
                days.add(date.fromisoformat(partition[DATE]))
    return sorted(days), len(wanted - there)


def _day(out: Location, day: date, columns: Sequence[str]) -> Iterator[pa.Table]:
    root = table_folder(out, SCORES)
    for _, path in base_of(open_table(root), root, [day]).files:
        yield read_columns(root / path, SCORES.schema, columns)


def _told(rows: pa.Table, labels: Labels) -> Iterator[tuple[str, str | None, int | None, list[int]]]:
    """Of the rows that something is said of: id, model, label of the log, and the labels in their order."""
    said = labels.said(rows["request_id"])
    for request_id, model, own in zip(*(rows[name].to_pylist() for name in KEY), strict=True):
        if ours := holds(said.get(request_id, ()), model):
            yield request_id, model, own, ours


def _labelled(rows: pa.Table, labels: Labels) -> pa.Table:
    last = {(request_id, model): said[-1] for request_id, model, _, said in _told(rows, labels)}
    columns = zip(*(rows[name].to_pylist() for name in KEY), strict=True)
    merged = [last.get((request_id, model), own) for request_id, model, own in columns]
    place = SCORES.schema.get_field_index("label")
    return rows.set_column(place, SCORES.schema.field(place), pa.array(merged, pa.int8()))
