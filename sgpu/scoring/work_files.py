"""Files of a run in work: rows dealt out by a hash of their id, and small JSON files that say "done".

Equal ids always meet, whichever file, run or day they come from. The hash space is cut into a power of two of
equal parts, so that the parts of a finer cut lie whole in those of a coarser one: files that were written for
one number of buckets can be read by another.

Arrow's file format instead of Parquet: its footer has a few bytes for every part, where Parquet has
statistics of every column, which each of hundreds of buckets would parse again.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from sgpu.hashing import canonical_json
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import opened_arrow, write_arrow

BITS = 32
_NAME = re.compile(r"bucket-(?P<number>\d+)-of-(?P<of>\d+)")


def place_of(key: str) -> int:
    """Where a key stands in the hash space, in [0, 2**32)."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big")


def power_of_two(wanted: float) -> int:
    """The smallest power of two that is not below ``wanted``; at least 1."""
    return 1 << min(BITS, max(0, math.ceil(wanted) - 1).bit_length())


@dataclass(frozen=True)
class Bucket:
    """Part ``number`` (from 0) of the hash space cut into ``of`` parts, a power of two."""

    number: int
    of: int

    @property
    def name(self) -> str:
        return f"bucket-{self.number:04d}-of-{self.of:04d}"

    @classmethod
    def in_name(cls, name: str) -> Bucket | None:
        """The bucket that a file is named after; None for a file that somebody else wrote."""
        found = _NAME.match(name)
        return None if found is None else cls(int(found["number"]), int(found["of"]))

    def holds(self, place: int) -> bool:
        return place * self.of >> BITS == self.number

    def parts(self, of: int) -> range:
        """The parts of a cut into ``of`` that have something in common with this bucket."""
        if of >= self.of:
            finer = of // self.of
            return range(self.number * finer, (self.number + 1) * finer)
        return range(self.number * of // self.of, self.number * of // self.of + 1)

    def meets(self, other: Bucket) -> bool:
        return other.number in self.parts(other.of)

    def covers(self, other: Bucket) -> bool:
        """Whether all that ``other`` holds is here."""
        return other.of >= self.of and self.meets(other)


PLACE = "place"  # the column with a row's place in the hash space
ROWS_A_PART = 64
MOST_PARTS = 4096
_OF = b"sgpu_parts"


def write_partitioned(file: Location, rows: pa.Table) -> None:
    """Write rows so that those of any bucket can be read without the others; whole or not at all."""
    parts = min(MOST_PARTS, power_of_two(rows.num_rows / ROWS_A_PART))
    part = _parts(rows[PLACE], parts)
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(parts + 1))
    ordered = rows.take(pa.array(order)).combine_chunks()
    sink = pa.BufferOutputStream()
    schema = ordered.schema.with_metadata({_OF: str(parts).encode()})
    cuts = (ordered.slice(start, end - start) for start, end in pairwise(ends))
    write_arrow(sink, (_batch(cut, schema) for cut in cuts), schema, "zstd")
    file.parent.make_folder()
    file.write_bytes(sink.getvalue().to_pybytes())


def read_partitioned(file: Location, bucket: Bucket) -> pa.Table:
    """The rows of one bucket, in an order that the file decides."""
    with file.errors(), file.filesystem.open_input_file(file.path) as source:
        reader = opened_arrow(source, str(file))
        parts = bucket.parts(int(reader.schema.metadata[_OF]))
        rows = pa.Table.from_batches([reader.get_batch(number) for number in parts], reader.schema)
    if reader.num_record_batches < bucket.of:
        rows = rows.filter(pa.array(_parts(rows[PLACE], bucket.of) == np.uint64(bucket.number)))
    return rows.replace_schema_metadata(None)


def _parts(places: Any, of: int) -> Any:
    """For each place the number of its part of a cut into ``of`` parts."""
    return (places.to_numpy().astype(np.uint64) * np.uint64(of)) >> np.uint64(BITS)


def _batch(rows: pa.Table, schema: pa.Schema) -> Any:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


def write_json(file: Location, content: Any) -> None:
    """Canonical JSON, whole or not at all."""
    file.parent.make_folder()
    file.write_bytes(canonical_json(content).encode())


def read_json(file: Location) -> Any:
    """What `write_json` wrote; None where there is no file."""
    try:
        return json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
