"""Batch output holds answers, its input file the questions: both meet here by the id of the batch's line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sgpu.scoring.buckets import Bucket
from sgpu.scoring.ingest import JOINED, OWN, Chunks
from sgpu.scoring.plan import Plan
from sgpu.scoring.records import Reason
from sgpu.scoring.work_files import read_dealt, read_json, write_json
from sgpu.scoring.work_rows import PROMPT, RECORD, REJECTED, Row, rejected_row, settled

# What the input line of a batch says of its answers, where the output does not say it.
_KNOWN = ("prompt_sha256", "route", "model", "group_key", "prompt", "reason", "detail")


def join(plan: Plan, part: Bucket, files: Sequence[str]) -> dict[str, Any]:
    """Join one part of what waits, unless that was done; the content of its marker."""
    done = plan.work / "ingest" / f"join-{part.name}.json"
    if (found := read_json(done)) is not None:
        return found
    window_s = plan.settings.group_window_s
    rows = pa.concat_tables([read_dealt(plan.work / "ingest" / file, part) for file in files])
    own = Chunks(plan.work / "ingest" / f"join-{part.name}", OWN)
    prompts = 0
    for together in _by_key(rows):
        known, answered = _known(together), any(row["kind"] != PROMPT for row in together)
        for row in together:
            if row["kind"] in (RECORD, REJECTED):
                own.add(_joined(row, known, window_s))
            elif row["kind"] == PROMPT and answered:
                prompts += 1
            elif row["kind"] == PROMPT:
                own.add(_without_output(row))
    own.flush()
    content = {"prompts": prompts, OWN: own.counted()}
    write_json(done, content)
    return content


def joined_files(markers: Sequence[dict[str, Any]]) -> list[str]:
    """The files of all units that hold rows to be joined."""
    return [file for content in markers for file in content[JOINED]["files"]]


def _by_key(rows: pa.Table) -> Iterator[list[Row]]:
    """Rows with the same key, in the order of the logs."""
    found: dict[str, list[Row]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["join_key"], []).append(row)
    for key in sorted(found):
        yield sorted(found[key], key=lambda row: (row["split"] or 0, row["line"] or 0))


def _known(rows: Sequence[Row]) -> Row:
    """What the input says. Of several batches that use an id twice, nobody knows which one is meant."""
    different = {tuple(row[name] for name in _KNOWN): row for row in rows if row["kind"] == PROMPT}
    return next(iter(different.values())) if len(different) == 1 else dict.fromkeys(_KNOWN)


def _joined(row: Row, known: Row, window_s: int) -> Row:
    if known["reason"] is not None:  # such a request has no answers that could be compared
        row = rejected_row(row, Reason(known["reason"]), known["detail"])
        return settled(row, window_s)
    for name in ("prompt_sha256", "route", "model", "group_key", "prompt"):
        row[name] = known[name] if row[name] is None else row[name]
    return settled(row, window_s)


def _without_output(row: Row) -> Row:
    detail = "no line of output has the custom_id of this line"
    return settled(rejected_row(row, Reason.NO_OUTPUT, detail), 0)
