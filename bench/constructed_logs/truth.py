"""What scoring has to find in the constructed logs, counted while they are written."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TextIO

from bench.constructed_logs.faults import Planted

IDS = 2**256


def ids_sha256(ids: Iterable[str]) -> str:
    """A hash of a set of ids that does not depend on their order: the sum of their sha256 modulo 2**256."""
    return f"{sum(_number(one) for one in ids) % IDS:064x}"


def _number(request_id: str) -> int:
    return int.from_bytes(hashlib.sha256(request_id.encode()).digest(), "big")


@dataclass
class Truth:
    """The counts of one day, in the words of `sgpu.logs.accounting`."""

    fates: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)
    labels: Counter[int] = field(default_factory=Counter)
    files: int = 0
    bytes: int = 0
    _ids: int = 0

    @property
    def rows(self) -> int:
        return self.fates.total()

    def row(self, planted: Planted) -> None:
        """Count a row that will be written."""
        self.fates[planted.fate] += 1
        if planted.reason is not None:
            self.reasons[str(planted.reason)] += 1

    def request(self, request_id: str, status: str, label: int | None) -> None:
        """Count a request that can be scored. The id of a set of single answers is for scoring to choose."""
        self.statuses[status] += 1
        if status != "grouped":
            self._ids = (self._ids + _number(request_id)) % IDS
        if label is not None:
            self.labels[label] += 1

    def to_json(self) -> dict[str, Any]:
        return {
            "rows_in": self.rows,
            "scored_rows": self.fates["scored"],
            "quarantined": self.fates["quarantined"],
            "duplicates": self.fates["duplicate"],
            "already": 0,
            "other_day": 0,
            "no_answer": self.fates["no_answer"],
            "prompts": self.fates["prompt"],
            "requests_scored": self.statuses.total(),
            "by_reason": dict(sorted(self.reasons.items())),
            "by_status": dict(sorted(self.statuses.items())),
            "by_fault": dict(sorted(self.faults.items())),
            "labels": {str(label): count for label, count in sorted(self.labels.items())},
            "request_ids_sha256": f"{self._ids:064x}",  # of all but the grouped ones, see `ids_sha256`
            "lines": dict(sorted(self.lines.items())),
            "files": self.files,
            "bytes": self.bytes,
        }


class PlantedFile:
    """JSON Lines of every row that is not a good one, with the file and the line where it stands."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, file: str, line: int, planted: Iterable[Planted]) -> None:
        """``file`` is relative to the logs, ``line`` counts from 1."""
        for one in planted:
            if one.fault is None and one.fate != "duplicate":
                continue
            row = {"file": file, "line": line, "fate": one.fate, "fault": one.fault, "reason": one.reason}
            self._stream.write(json.dumps(row | {"request_id": one.request_id}) + "\n")
