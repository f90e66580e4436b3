"""What people say of answers: a table beside the scores that is only added to; the last word counts.

And a scored day with what is said of its requests by now: no log is read, and nothing is scored.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from sgpu.datasets.fields import LABEL_REMEDY, RowError, check_label, check_text
from sgpu.datasets.response_files import RowFile
from sgpu.datasets.source_rows import DatasetRow
from sgpu.errors import DataError
from sgpu.hashing import sha256_of_file
from sgpu.scoring.tables import DATE, SCORES, VERDICTS, base_of, read_columns, reproducible_parquet_bytes
from sgpu.storage.delta_log import add_actions, commit, logged_files, open_or_create, open_table, waits
from sgpu.storage.location import Location
from sgpu.watch.history import summary_place
from sgpu.watch.sketch import Sketch, folded, sketch_of_all

WHOLE_TABLE = "verdicts"
NONE = VERDICTS.schema.empty_table()
# What is said of a request, in the order in which it counts: (model, label); model None: any.
Said = tuple[str | None, int]
Request = tuple[str, str | None]  # request id and model


@dataclass(frozen=True)
class LabelsRead:
    """A file of labels: rows ``read``, rows that are ``new`` to the table, and ``conflicts``, labels that
    contradict an earlier one of the file or of the table."""

    read: int
    new: int
    conflicts: int


class LabelSnapshot:
    """The table as it stood at one moment.

    ``until`` is the time of its newest row, in microseconds since 1970; 0 where it has none.
    """

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.until = pc.max(rows["time"]).cast(pa.int64()).as_py() or 0

    def said(self, requests: pa.Array | pa.ChunkedArray) -> dict[str, list[Said]]:
        """All that is said of these request ids, the last that counts last.

        Of one moment what names its model counts more than what holds for every model.
        """
        rows = self.rows.filter(pc.is_in(self.rows["request_id"], value_set=requests))
        by_request: dict[str, list[Said]] = {}
        columns = (rows[name].to_pylist() for name in ("time", "model", "request_id", "label"))
        ordered = sorted(zip(*columns, strict=True), key=lambda row: (row[0], row[1] is not None))
        for _, model, request_id, label in ordered:
            by_request.setdefault(request_id, []).append((model, label))
        return by_request


def labels_of(out: Location) -> LabelSnapshot:
    """The table as it stands now."""
    root = out / VERDICTS.name
    delta = open_table(root)
    return LabelSnapshot(NONE) if delta is None else _labels(root, delta)


def holds(said: Sequence[Said], model: str | None) -> list[int]:
    """Of what is said of a request id, the labels that hold for this model."""
    return [label for about, label in said if about in (None, model)]


def take_in(out: Location, source: str) -> LabelsRead | None:
    """Add what a file says anew; None if the same file was taken in before.

    Raises DataError, naming file and row, for a row that is no label; then nothing is added. StageError if
    commits keep failing.
    """
    root = out / VERDICTS.name
    location = Location.of(source)
    if not location.is_file():
        raise DataError(f"{source}: no such file. Give a JSON Lines file of request_id and label.")
    with location.on_this_machine() as file:
        sha256 = sha256_of_file(file)
        token = f"{WHOLE_TABLE}/{sha256}"
        delta = open_table(root)
        if delta is not None and delta.transaction_version(token) is not None:
            return None
        said, read, conflicts = _read(source, file)
    lost = waits(f"add the labels of {source}")
    while True:
        delta = open_or_create(root, VERDICTS.schema)
        if delta.transaction_version(token) is not None:
            return None
        labels = _labels(root, delta)
        new, changed = _news(labels, said)
        if _added(root, delta, labels, new, source, sha256):
            return LabelsRead(read, len(new), conflicts + changed)
        next(lost)


def _read(source: str, file: Path) -> tuple[dict[Request, int], int, int]:
    """The last label of each request id and model, the rows, and how often a label was contradicted."""
    said: dict[Request, int] = {}
    read = conflicts = 0
    for row in RowFile(file, KEY):
        try:
            key, label = _checked(row)
        except RowError as error:
            raise DataError(f"{source}: {row.position}: {error}") from None
        conflicts += said.get(key, label) != label
        said[key] = label
        read += 1
    return said, read, conflicts


def _news(labels: LabelSnapshot, said: Mapping[Request, int]) -> tuple[dict[Request, int], int]:
    """What changes what the table says, and how much of it contradicts that."""
    before = labels.said(pa.array({request_id for request_id, _ in said}, pa.string()))
    new, changed = {}, 0
    # What holds for every model first: what names its model is then compared with it.
    for request_id, model in sorted(said, key=lambda key: (key[1] is not None, key[0], key[1] or "")):
        label, earlier = said[request_id, model], before.setdefault(request_id, [])
        # A word on every model is also news where a model has one of its own since.
        ours = (
            holds(earlier, model)
            if model is not None
            else [value for about, value in earlier[-1:] if about is None]
        )
        if ours[-1:] != [label]:
            changed += bool(earlier) and label not in holds(earlier, model)[-1:]
            new[request_id, model] = label
            earlier.append((model, label))
    return new, changed


def _added(
    root: Location,
    delta: DeltaTable,
    labels: LabelSnapshot,
    new: Mapping[Request, int],
    source: str,
    sha256: str,
) -> bool:
    """Whether nobody else has committed first."""
    moment = max(time.time_ns() // 1000, labels.until + 1)
    rows = [
        {"request_id": request_id, "model": model, "label": label, "time": moment, "source": source}
        for (request_id, model), label in new.items()
    ]
    generation = (delta.transaction_version(WHOLE_TABLE) or 0) + 1
    actions = []
    if rows:
        file = root / f"{generation:08d}-{sha256[:16]}.parquet"
        file.write_bytes(reproducible_parquet_bytes(pa.Table.from_pylist(rows, schema=VERDICTS.schema)))
        actions = add_actions(root, {file: {"numRecords": len(rows)}}, {})
    names = (WHOLE_TABLE, f"{WHOLE_TABLE}/{sha256}")
    return commit(root, delta, actions, names, generation, {"sgpu_labels_sha256": sha256})


def _labels(root: Location, delta: DeltaTable) -> LabelSnapshot:
    return _read_once(tuple(file.location for file in logged_files(root, delta)))


@lru_cache(maxsize=1)  # the days of a run share one
def _read_once(files: tuple[Location, ...]) -> LabelSnapshot:
    return LabelSnapshot(pa.concat_tables([NONE, *(read_columns(file, VERDICTS.schema) for file in files)]))


def _checked(row: DatasetRow) -> tuple[Request, int]:
    if row.fault is not None:
        raise row.fault
    request_id, model, label = (row.values.get(name) for name in KEY)
    request_id = check_text(request_id, "request_id", allow_blank=True)
    model = None if model is None else check_text(model, "model", allow_blank=True)
    given = check_label(label)
    if given is None:
        raise RowError("label is missing", LABEL_REMEDY)
    return (request_id, model), given


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
        """Return the state that a day's summary records; the empty one if it records none."""
        content = summary.get("labels") or {}
        return cls(**{name: content[name] for name in cls.__dataclass_fields__ if name in content})


def news(out: Location, summary: Mapping[str, Any], labels: LabelSnapshot) -> LabelState | None:
    """What is said now of the day of a summary; None if it is what it was judged with.

    That nothing is new is written down, so that the ids are not read again before more labels come.
    """
    day, before = date.fromisoformat(summary["date"]), LabelState.of(summary)
    looked = {"run_key": summary["run_key"], "sha256": before.sha256, "until": labels.until}
    looked_file = summary_place(out, day).parent / LOOKED
    if labels.until == before.until or looked_file.read_json() == looked:
        return None
    state = state_of(out, day, labels)
    if state.sha256 != before.sha256:
        return state
    looked_file.write_json(looked)
    return None


def state_of(out: Location, day: date, labels: LabelSnapshot) -> LabelState:
    """Reads the ids of the day alone."""
    lines, conflicts = [], 0
    for rows in _day(out, day, KEY) if labels.until else ():
        for request_id, model, own, said in _with_labels(rows, labels):
            lines.append(f"{said[-1]} {model} {request_id}")
            conflicts += len({*said} if own is None else {own, *said}) > 1
    text = "\n".join(sorted(lines)).encode("utf-8", "surrogatepass")
    return LabelState(labels.until, len(lines), conflicts, hashlib.sha256(text).hexdigest())


def sketch_with(out: Location, day: date, labels: LabelSnapshot, history: Sequence[Sketch]) -> Sketch:
    """The sketch of all committed rows of the day, each with its last label; bounded as `folded` does."""
    rows = (_labelled(rows, labels) for rows in _day(out, day, SCORES.schema.names))
    return folded(sketch_of_all(rows, lambda: history), history)


def days_of(out: Location, labels: LabelSnapshot, after: int) -> tuple[list[date], int]:
    """The days on which the requests stand of which something was said ``after`` a moment, and of how many
    labels the request stands nowhere. Reads ids and models of all files.
    """
    moments = labels.rows["time"].cast(pa.int64())
    late = labels.rows.filter(pc.greater(moments, after))
    wanted = set(zip(late["request_id"].to_pylist(), late["model"].to_pylist(), strict=True))
    ids = late["request_id"].unique()
    root = out / SCORES.name
    delta = open_table(root) if wanted else None
    in_table, days = set(), set()
    for file in [] if delta is None else logged_files(root, delta):
        rows = read_columns(file.location, SCORES.schema, ("request_id", "model"))
        rows = rows.filter(pc.is_in(rows["request_id"], value_set=ids))
        for request_id, model in zip(rows["request_id"].to_pylist(), rows["model"].to_pylist(), strict=True):
            if about := {(request_id, None), (request_id, model)} & wanted:
                in_table |= about
                days.add(date.fromisoformat(file.partition[DATE]))
    return sorted(days), len(wanted - in_table)


def _day(out: Location, day: date, columns: Sequence[str]) -> Iterator[pa.Table]:
    root = out / SCORES.name
    for _, path in base_of(open_table(root), root, [day]).files:
        yield read_columns(root / path, SCORES.schema, columns)


def _with_labels(
    rows: pa.Table, labels: LabelSnapshot
) -> Iterator[tuple[str, str | None, int | None, list[int]]]:
    """Of the rows that something is said of: id, model, label of the log, and the labels in their order."""
    said = labels.said(rows["request_id"])
    for request_id, model, own in zip(*(rows[name].to_pylist() for name in KEY), strict=True):
        if ours := holds(said.get(request_id, ()), model):
            yield request_id, model, own, ours


def _labelled(rows: pa.Table, labels: LabelSnapshot) -> pa.Table:
    last = {(request_id, model): said[-1] for request_id, model, _, said in _with_labels(rows, labels)}
    columns = zip(*(rows[name].to_pylist() for name in KEY), strict=True)
    merged = [last.get((request_id, model), own) for request_id, model, own in columns]
    index = SCORES.schema.get_field_index("label")
    return rows.set_column(index, SCORES.schema.field(index), pa.array(merged, pa.int8()))
