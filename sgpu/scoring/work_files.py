"""Files of a run in work: rows dealt out by hash, and small JSON files whose presence says "done".

Arrow's file format instead of Parquet: its footer has a few bytes for every part, where Parquet has
statistics of every column, which each of hundreds of buckets would parse again.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from sgpu.scoring.buckets import BITS, Bucket, power_of_two
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import opened_arrow, write_arrow

PLACE = "place"  # the column with a row's place in the hash space
ROWS_A_PART = 64
MOST_PARTS = 4096
_OF = b"sgpu_parts"


def write_dealt(file: Location, rows: pa.Table) -> None:
    """Write rows so that those of any bucket can be read without the others; whole or not at all."""
    parts = min(MOST_PARTS, power_of_two(rows.num_rows / ROWS_A_PART))
    part = (rows[PLACE].to_numpy().astype(np.uint64) * np.uint64(parts)) >> np.uint64(BITS)
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(parts + 1))
    ordered = rows.take(pa.array(order)).combine_chunks()
    sink = pa.BufferOutputStream()
    schema = ordered.schema.with_metadata({_OF: str(parts).encode()})
    cuts = (ordered.slice(start, end - start) for start, end in pairwise(ends))
    write_arrow(sink, (_batch(cut, schema) for cut in cuts), schema, "zstd")
    file.parent.make_folder()
    file.write_bytes(sink.getvalue().to_pybytes())


def read_dealt(file: Location, bucket: Bucket) -> pa.Table:
    """The rows of one bucket, in an order that the file decides."""
    with file.errors(), file.filesystem.open_input_file(file.path) as source:
        reader = opened_arrow(source, str(file))
        parts = bucket.parts(int(reader.schema.metadata[_OF]))
        rows = pa.Table.from_batches([reader.get_batch(number) for number in parts], reader.schema)
    if reader.num_record_batches < bucket.of:
        rows = rows.filter(_held(rows[PLACE], bucket))
    return rows.replace_schema_metadata(None)


def _held(places: Any, bucket: Bucket) -> Any:
    shifted = (places.to_numpy().astype(np.uint64) * np.uint64(bucket.of)) >> np.uint64(BITS)
    return pa.array(shifted == np.uint64(bucket.number))


def _batch(rows: pa.Table, schema: pa.Schema) -> Any:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


def write_json(file: Location, content: Any) -> None:
    """Canonical JSON, whole or not at all."""
    file.parent.make_folder()
    file.write_bytes(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def read_json(file: Location) -> Any:
    """What `write_json` wrote; None where there is no file."""
    try:
        return json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
