"""Files of the tables before they are published: beneath the table, and seen by no reader until the commit.

A file is named after its content. Whoever writes it again writes the same bytes, so that two runs that do the
same work at the same time never spoil what one of them has published.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from sgpu.scoring.buckets import Bucket
from sgpu.scoring.plan import Plan
from sgpu.scoring.sets.committed import Base
from sgpu.scoring.tables import DATE, parquet_bytes
from sgpu.storage.location import Location
from sgpu.storage.tables import Table

# Longer ids than these stay out of the statistics, which every reader of the table holds in memory.
LONGEST_STATISTIC = 200


@dataclass(frozen=True)
class StagedFile:
    """``path`` in its table; ``least`` and ``greatest`` request id, None where they are not told."""

    path: str
    size: int
    rows: int
    least: str | None = None
    greatest: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> StagedFile:
        return cls(**content)


def table_folder(out: Location, table: Table) -> Location:
    return out / table.name


def stage(plan: Plan, base: Base, bucket: Bucket, table: Table, rows: pa.Table) -> StagedFile | None:
    """Write the rows of one bucket; None where there are none."""
    if not rows.num_rows:
        return None
    payload = parquet_bytes(rows)
    name = f"{bucket.name}-{hashlib.sha256(payload).hexdigest()[:16]}.parquet"
    path = f"{DATE}={plan.day.isoformat()}/{plan.short_key}-{base.name}/{name}"
    file = table_folder(plan.out, table) / path
    file.parent.make_folder()
    if not file.is_file():
        file.write_bytes(payload)
    ids = [one for one in rows["request_id"].to_pylist() if one is not None]
    told = len(ids) == rows.num_rows and max(map(len, ids)) <= LONGEST_STATISTIC
    return StagedFile(path, len(payload), rows.num_rows, *((min(ids), max(ids)) if told else ()))
