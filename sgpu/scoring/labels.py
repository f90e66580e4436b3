"""What people say of answers: a table beside the scores that is only added to; the last word counts."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from sgpu.datasets.response_files import RawRow, file_sha256, read_rows
from sgpu.errors import DataError, StageError
from sgpu.logs.rows.fields import storable
from sgpu.scoring.sets.committed import read_columns
from sgpu.scoring.staging import table_folder
from sgpu.scoring.tables import VERDICTS, parquet_bytes
from sgpu.storage.delta_log import active_files, open_or_create, open_table, table_errors
from sgpu.storage.location import Location

COMMIT_TRIES = 50
WHOLE_TABLE = "verdicts"
NONE = VERDICTS.schema.empty_table()
# What is said of a request, in the order in which it counts: (model, label); model None: any.
Said = tuple[str | None, int]


@dataclass(frozen=True)
class Taken:
    """A file of labels: rows ``read``, rows that are ``new`` to the table, and ``conflicts``, labels that
    contradict an earlier one of the file or of the table."""

    read: int
    new: int
    conflicts: int


class Labels:
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
        found: dict[str, list[Said]] = {}
        columns = (rows[name].to_pylist() for name in ("time", "model", "request_id", "label"))
        told = sorted(zip(*columns, strict=True), key=lambda row: (row[0], row[1] is not None))
        for _, model, request_id, label in told:
            found.setdefault(request_id, []).append((model, label))
        return found


def labels_of(out: Location) -> Labels:
    """The table as it stands now."""
    root = table_folder(out, VERDICTS)
    delta = open_table(root)
    return Labels(NONE) if delta is None else _labels(root, delta)


def holds(said: Sequence[Said], model: str | None) -> list[int]:
    """Of what is said of a request id, the labels that hold for this model."""
    return [label for about, label in said if about in (None, model)]


def take_in(out: Location, place: str) -> Taken | None:
    """Add what a file says anew; None if the same file was taken in before.

    Raises DataError, naming file and row, for a row that is no label; then nothing is added. StageError if
    commits keep failing.
    """
    root = table_folder(out, VERDICTS)
    with tempfile.TemporaryDirectory() as folder:
        file = _local(place, Path(folder))
        sha256 = file_sha256(file)
        delta = open_table(root)
        if delta is not None and delta.transaction_version(_name(sha256)) is not None:
            return None
        said, read, conflicts = _read(place, file)
    for _ in range(COMMIT_TRIES):
        delta = open_or_create(root, VERDICTS.schema)
        if delta.transaction_version(_name(sha256)) is not None:
            return None
        known = _labels(root, delta)
        new, changed = _news(known, said)
        if _committed(root, delta, _table(new, known, place), sha256):
            return Taken(read, len(new), conflicts + changed)
    raise StageError(f"could not add the labels of {place} after {COMMIT_TRIES} tries; try again")


def _read(place: str, file: Path) -> tuple[dict[tuple[str, str | None], int], int, int]:
    """The last label of each request id and model, the rows, and how often a label was contradicted."""
    said: dict[tuple[str, str | None], int] = {}
    read = conflicts = 0
    for raw in read_rows(file):
        key, label = _checked(place, raw)
        conflicts += said.get(key, label) != label
        said[key] = label
        read += 1
    return said, read, conflicts


def _news(
    known: Labels, said: Mapping[tuple[str, str | None], int]
) -> tuple[dict[tuple[str, str | None], int], int]:
    """What changes what the table says, and how much of it contradicts that."""
    before = known.said(pa.array({request_id for request_id, _ in said}, pa.string()))
    new, changed = {}, 0
    # What holds for every model first: what names its model is then compared with it.
    for request_id, model in sorted(said, key=lambda key: (key[1] is not None, key[0], key[1] or "")):
        label, told = said[request_id, model], before.setdefault(request_id, [])
        # A word on every model is also news where a model has one of its own since.
        ours = holds(told, model) if model is not None else [one for about, one in told[-1:] if about is None]
        if ours[-1:] != [label]:
            changed += bool(told) and label not in holds(told, model)[-1:]
            new[request_id, model] = label
            told.append((model, label))
    return new, changed


def _table(new: Mapping[tuple[str, str | None], int], known: Labels, place: str) -> pa.Table:
    moment = max(time.time_ns() // 1000, known.until + 1)
    rows = [
        {"request_id": request_id, "model": model, "label": label, "time": moment, "source": place}
        for (request_id, model), label in new.items()
    ]
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in VERDICTS.schema]
    return pa.Table.from_arrays(columns, schema=VERDICTS.schema)


def _name(sha256: str) -> str:
    return f"{WHOLE_TABLE}/{sha256}"


def _committed(root: Location, delta: DeltaTable, rows: pa.Table, sha256: str) -> bool:
    """Whether nobody else has committed first."""
    generation = (delta.transaction_version(WHOLE_TABLE) or 0) + 1
    actions = []
    if rows.num_rows:
        payload = parquet_bytes(rows)
        file = root / f"{generation:08d}-{sha256[:16]}.parquet"
        file.write_bytes(payload)
        stats = json.dumps({"numRecords": rows.num_rows})
        moment = time.time_ns() // 1_000_000
        actions = [AddAction(file.name, len(payload), {}, moment, data_change=True, stats=stats)]
    names = (WHOLE_TABLE, _name(sha256))
    try:
        with table_errors(root):
            delta.create_write_transaction(
                actions,
                mode="append",
                schema=delta.schema(),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(name, generation) for name in names],
                    custom_metadata={"sgpu_labels_sha256": sha256},
                ),
            )
    except CommitFailedError:
        return False
    return True


def _labels(root: Location, delta: DeltaTable) -> Labels:
    return _read_once(tuple(file for _, file in active_files(root, delta)))


@lru_cache(maxsize=1)  # the days of a run share one
def _read_once(files: tuple[Location, ...]) -> Labels:
    return Labels(pa.concat_tables([NONE, *(read_columns(file, VERDICTS.schema) for file in files)]))


def _local(place: str, folder: Path) -> Path:
    """The file on this machine; from object storage it is copied into ``folder``."""
    location = Location.of(place)
    if not location.is_file():
        raise DataError(f"{place}: no such file. Give a JSON Lines file of request_id and label.")
    if location.is_local:
        return location.local
    copy = folder / location.name
    copy.write_bytes(location.read_bytes())
    return copy


def _is_text(value: object) -> bool:
    return isinstance(value, str) and storable(value)


def _checked(place: str, raw: RawRow) -> tuple[tuple[str, str | None], int]:
    record = raw.record or {}
    request_id, label, model = (record.get(name) for name in ("request_id", "label", "model"))
    texts = _is_text(request_id) and (model is None or _is_text(model))
    if not texts or isinstance(label, str) or label not in (0, 1):
        found = raw.fault or (
            f"has request_id {ascii(request_id)[:60]}, label {ascii(label)[:60]}, model {ascii(model)[:60]}"
        )
        raise DataError(
            f"{place}: row {raw.row} {found}; a text as request_id, 0 or 1 as label, and a text or nothing "
            "as model are needed"
        )
    return (str(request_id), model), int(label)
