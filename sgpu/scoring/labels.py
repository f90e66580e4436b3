"""Labels that arrive after the answers: a file of request ids, dealt out like the logs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from sgpu.datasets.response_files import RawRow, file_sha256, read_rows
from sgpu.errors import DataError
from sgpu.location import Location
from sgpu.scoring.ingest import Chunks
from sgpu.scoring.plan import Plan
from sgpu.scoring.work_files import read_json, write_json
from sgpu.scoring.work_rows import of_label


def labels_sha256(place: str | None) -> str | None:
    """sha256 of the file; None where none is given. DataError where there is no such file."""
    if place is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        return file_sha256(_local(place, Path(folder)))


def deal_labels(plan: Plan) -> dict[str, Any]:
    """Read the file of labels, unless that was done; the content of its marker.

    Raises DataError, naming file and row, for a row that is no label.
    """
    done = plan.work / "ingest" / "labels.json"
    if (found := read_json(done)) is not None:
        return found
    chunks = Chunks(plan.work / "ingest" / "labels", "labels")
    place = plan.settings.labels
    assert place is not None
    with tempfile.TemporaryDirectory() as folder:
        for raw in read_rows(_local(place, Path(folder))):
            chunks.add(of_label(*_checked(place, raw)))
    chunks.flush()
    content = chunks.counted()
    write_json(done, content)
    return content


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


def _checked(place: str, raw: RawRow) -> tuple[str, int]:
    record = raw.record or {}
    request_id, label = record.get("request_id"), record.get("label")
    if not isinstance(request_id, str) or isinstance(label, str) or label not in (0, 1):
        found = raw.fault or f"has request_id {ascii(request_id)[:60]} and label {ascii(label)[:60]}"
        raise DataError(
            f"{place}: row {raw.row} {found}; a text as request_id and 0 or 1 as label are needed"
        )
    return request_id, int(label)
