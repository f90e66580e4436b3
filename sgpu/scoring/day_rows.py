"""The rows of a day as files that can be published, with their counts and their sketch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from sgpu.logs.accounting import Accounting
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.publish import StagedFile, stage
from sgpu.scoring.sets.relations import Relations
from sgpu.scoring.sets.shuffle import parts_for, regrouped, with_columns
from sgpu.scoring.slices import scored_folder
from sgpu.scoring.tables import JUDGED, QUARANTINE, SCORES, Base, read_columns
from sgpu.storage.location import Location
from sgpu.storage.tables import Table
from sgpu.watch.history import read_past_days
from sgpu.watch.sketch import Sketch, sketch_of_all

ROWS_OF_A_FILE = 500_000  # about 128 MB of scores
BYTES_OF_A_FILE = 2**30  # in memory: answers to show may be long
PACKED = 4  # bytes in memory of a byte of a file of scores, at most


class DayRows:
    """What the relations of a decided and scored day come to, against one base. ``scored``: files."""

    def __init__(self, plan: DayPlan, base: Base, relations: Relations, scored: Sequence[Location]) -> None:
        self._plan, self._base, self._relations, self._scored = plan, base, relations, scored
        self._requests = self._scored_rows = self._before = 0

    def scores(self) -> tuple[tuple[StagedFile, ...], Sketch]:
        """The new rows of the score table; and the sketch of all rows of the day."""
        champion, challenger = self._plan.models.champion, self._plan.models.challenger
        same = {
            "scorer": champion.label,
            "scorer_sha256": champion.sha256,
            "shadow_scorer": None if challenger is None else challenger.label,
        }
        staged: list[StagedFile] = []

        def rows_of_day() -> Iterator[pa.Table]:
            for rows in _files(self._by_request(), SCORES, same | self._of_the_run()):
                self._requests += len(rows)
                self._scored_rows += sum(
                    1 if members is None else len(members) for members in rows["members"].to_pylist()
                )
                staged.append(stage(self._plan, self._base, len(staged), SCORES, rows))
                yield rows
            for rows in self._committed():
                self._before += len(rows)
                yield rows

        sketch = sketch_of_all(rows_of_day(), lambda: read_past_days(self._plan.out, self._plan.day).sketches)
        return tuple(staged), sketch

    def _by_request(self) -> Iterator[pa.Table]:
        """The new rows with what the models say of them, in an order that only their ids decide."""
        rows = with_columns(self._relations.run("scores"), self._scored, JUDGED)
        size = sum(info.size for info in scored_folder(self._plan.work).infos().values())
        return regrouped(
            self._relations.folder / "new", rows, parts_for(0, PACKED * size), ("request_id", "model")
        )

    def quarantine(self) -> tuple[tuple[StagedFile, ...], Mapping[str, int]]:
        """All refused rows; and how many lines there are for each reason, as faults of files are no rows."""
        staged: list[StagedFile] = []
        reasons = Counter[str]()
        for rows in _files(self._relations.run("quarantine"), QUARANTINE, self._of_the_run()):
            lines = rows.filter(rows["line"].is_valid())
            reasons.update(lines["reason"].to_pylist())
            staged.append(stage(self._plan, self._base, len(staged), QUARANTINE, rows))
        return tuple(staged), dict(sorted(reasons.items()))

    def accounting(self, reasons: Mapping[str, int]) -> Accounting:
        """Of the rows that stand for a request, after `scores` and `quarantine`."""
        fates = {row["fate"]: row["rows"] for row in self._relations.rows("counts")}
        return Accounting(
            scored_rows=self._scored_rows,
            quarantined=sum(reasons.values()),
            duplicates=fates.get("duplicate", 0),
            already=fates.get("already", 0),
            requests_scored=self._requests,
            requests_before=self._before,
            by_reason=reasons,
        )

    def vanished(self) -> int:
        """Requests of a day that is written anew, that would not stand in it any more."""
        return int(next(self._relations.rows("vanished"))["requests"])

    def _of_the_run(self) -> dict[str, str]:
        return {"run_key": self._plan.key, "code_version": self._plan.code_version}

    def _committed(self) -> Iterator[pa.Table]:
        """The rows of the day that stay as they are."""
        day, root = self._plan.day.isoformat(), self._plan.out / SCORES.name
        for of, path in () if self._plan.settings.rescore else self._base.files:
            if of == day:
                yield read_columns(root / path, SCORES.schema)


def _files(pieces: Iterable[pa.Table], table: Table, same: Mapping[str, str | None]) -> Iterator[pa.Table]:
    """Rows with all columns of a table, as many as go into a file; some are the ``same`` in every row."""
    parts: list[pa.Table] = []
    for rows in pieces:
        columns = [
            pa.array([same[field.name]] * len(rows), field.type)
            if field.name in same
            else rows[field.name].cast(field.type)
            for field in table.schema
        ]
        parts.append(pa.Table.from_arrays(columns, schema=table.schema))
        if sum(map(len, parts)) >= ROWS_OF_A_FILE or sum(one.nbytes for one in parts) >= BYTES_OF_A_FILE:
            yield pa.concat_tables(parts).combine_chunks()
            parts = []
    if any(map(len, parts)):
        yield pa.concat_tables(parts).combine_chunks()
