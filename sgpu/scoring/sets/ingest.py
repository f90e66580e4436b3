"""Reads a part of the day's logs once: into files of settled rows, and of rows that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from sgpu.hashing import sha256_hex
from sgpu.logs.accounting import SOUND, Accounting
from sgpu.logs.budget import rejected_row_limit
from sgpu.logs.reading import SplitEnd, read_split
from sgpu.logs.records import BatchPrompt, CallPart, Item, LogRecord, NoAnswer, Reason, Rejected
from sgpu.logs.rows.fields import DAY, day_of
from sgpu.scoring.parts import Step
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets.work_rows import (
    ABOUT,
    ANSWER,
    OTHER_DAY,
    SAME_ID,
    Row,
    around,
    is_single,
    of_part,
    of_prompt,
    of_record,
    of_rejected,
    settled,
    table_of,
)
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import parquet_bytes
from sgpu.storage.store import SHORT

OWN, JOINED = "own", "joined"  # rows that can be scored as they are; rows that wait for another file
CHUNK_ROWS = 20_000
CHUNK_CHARACTERS = 32 * 2**20


@dataclass
class Chunks:
    """Rows on their way into files of bounded size."""

    folder: Location
    name: str
    rows: list[Row] = field(default_factory=list)
    characters: int = 0
    written: int = 0
    files: list[str] = field(default_factory=list)
    total_characters: int = 0

    def add(self, row: Row) -> None:
        self.rows.append(row)
        size = sum(map(len, row.get("texts") or ()))
        size += sum(len(row.get(name) or "") for name in ("prompt", "question"))
        self.characters += size
        self.total_characters += size
        if len(self.rows) >= CHUNK_ROWS or self.characters >= CHUNK_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        if not self.rows:
            return
        file = self.folder / f"{self.name}-{len(self.files):03d}.parquet"
        file.parent.make_folder()
        file.write_bytes(parquet_bytes(table_of(self.rows), compression="zstd"))
        self.files.append(f"{self.folder.name}/{file.name}")
        self.written += len(self.rows)
        self.rows, self.characters = [], 0

    def counted(self) -> dict[str, Any]:
        return {"files": self.files, "rows": self.written, "characters": self.total_characters}


def chunks_of(plan: DayPlan, part: str, pieces: Iterable[str] | None, kind: str) -> Chunks:
    """For the rows of a part, or of some of its pieces; who tries the same again writes the same files."""
    of = "" if pieces is None else "-" + sha256_hex("\n".join(pieces))[:SHORT]
    return Chunks(plan.work / "ingest" / part, f"{kind}{of}")


class Reader(Step):
    """Reads units, which are runs of splits; a piece is a split.

    No error is put down to a file, as one may be of the disk or of object storage: only what ends the process
    that reads it is.
    """

    name: ClassVar[str] = "reading"

    def work(self, part: str, pieces: Sequence[str] | None) -> dict[str, Any]:
        reading = _Reading(self._plan, part, pieces)
        for number in self.pieces(part) if pieces is None else pieces:
            reading.split(int(number))
        return reading.finished()

    def pieces(self, part: str) -> list[str]:
        return [str(number) for number in self._plan.units[int(part)]]

    def give_up(self, part: str, pieces: Mapping[str, str]) -> dict[str, Any]:
        reading = _Reading(self._plan, part, pieces)
        for number, why in pieces.items():
            reading.give_up(int(number), why)
        return reading.finished()


class RejectedOverflow:
    """The rejected rows of a split that are too many to stand one by one, from line ``first`` on.

    Sound rows are none of them, nor those that others wait for.
    """

    def __init__(self, most: int) -> None:
        self._left, self.rows, self.first = most, Counter[str](), 0

    def takes(self, item: Rejected, line: int | None) -> bool:
        """Whether the row is only counted."""
        if item.reason in SOUND or item.join_key is not None or item.prompt is not None:
            return False
        self._left -= 1
        if self._left >= 0:
            return False
        self.first = self.first or line or 0
        self.rows[str(item.reason)] += 1
        return True

    def row(self) -> Rejected | None:
        """The one row that stands for them; None if there are none."""
        if not self.rows:
            return None
        counts = ", ".join(f"{count} {reason}" for reason, count in self.rows.most_common())
        detail = f"{self.rows.total()} rejected rows of this file, of this line and after it: {counts}"
        return Rejected(Reason(self.rows.most_common(1)[0][0]), detail)


class _Reading:
    """The rows of one unit by where they go, and their counts."""

    def __init__(self, plan: DayPlan, unit: str, pieces: Iterable[str] | None) -> None:
        self._plan = plan
        self._own, self._joined = (chunks_of(plan, f"unit-{unit}", pieces, kind) for kind in (OWN, JOINED))
        self._lines: dict[int, int] = {}
        self._formats: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._no_answer: Counter[str] = Counter()
        self._faults: set[tuple[int, str]] = set()
        self._own_days: set[int] = set()  # since 1970
        self._overflow = RejectedOverflow(0)
        first = datetime(plan.day.year, plan.day.month, plan.day.day, tzinfo=UTC)
        self._day = range(_microseconds(first), _microseconds(first + timedelta(days=1)))

    def split(self, number: int) -> None:
        size = self._plan.snapshot.files[self._plan.splits[number].file].size
        self._overflow = RejectedOverflow(rejected_row_limit(size, self._plan.splits[number]))
        for line, item in self._items(number):
            self._take(item, number, line)
        if (row := self._overflow.row()) is not None:
            self._route(of_rejected(row, number, self._overflow.first), other_day=False)
            self._counts["together"] += self._overflow.rows.total() - 1

    def give_up(self, number: int, why: str) -> None:
        self._lines[number] = 0
        self._take(Rejected(Reason.FILE_UNREADABLE, why), number, None)

    def _items(self, number: int) -> Iterator[tuple[int | None, Item]]:
        plan = self._plan
        asked_again = plan.settings.resample is not None
        split, format = plan.splits[number], plan.settings.format
        bounds, map = plan.settings.file, plan.settings.map
        undated = plan.settings.date if plan.settings.undated else None
        for item in read_split(
            plan.logs,
            plan.snapshot,
            split,
            format,
            map,
            keep_prompts=asked_again or plan.reads_questions,
            bounds=bounds,
            undated=undated,
        ):
            if isinstance(item, SplitEnd):
                self._lines[number] = item.lines
                self._counts["bytes_unread"] += item.unread
                self._formats.update(item.formats)
            else:
                line, row = item
                # Only to ask it again is the question of a rejected row of use.
                yield line, row if asked_again or not isinstance(row, Rejected) else replace(row, prompt=None)

    def _take(self, item: Item, split: int, line: int | None) -> None:
        if isinstance(item, Rejected) and line is None:
            self._faults.add((self._plan.splits[split].file, str(item.reason)))
            self._route(of_rejected(item, split, None), other_day=False)
            return
        self._counts["rows_in"] += 1
        match item:
            case NoAnswer(kind, None):
                self._no_answer[kind] += 1
            case NoAnswer(kind, CallPart() as part):
                self._joined.add(of_part(part, ABOUT, split, line, kind))
                self._around(part)
            case CallPart():
                elsewhere = self._elsewhere(item.timestamp)
                self._counts["other_day"] += elsewhere
                if not elsewhere:
                    self._is_of_the_day(item.timestamp)
                    self._joined.add(of_part(item, ANSWER, split, line))
            case BatchPrompt():
                self._joined.add(of_prompt(item, split, line))
            case LogRecord():
                elsewhere = self._elsewhere(item.timestamp)
                self._route(of_record(item, split, line), other_day=elsewhere)
                if not elsewhere:
                    self._around(item)
            case Rejected():
                elsewhere = self._elsewhere(item.timestamp)
                if elsewhere or not self._overflow.takes(item, line):
                    self._route(of_rejected(item, split, line), other_day=elsewhere)

    def _route(self, row: Row, *, other_day: bool) -> None:
        self._counts["other_day"] += other_day
        if not other_day:
            self._is_of_the_day(row["timestamp"])
        if row["join_key"] is not None:
            # Of another day only the fact that there is such a row meets the others.
            self._joined.add({"kind": OTHER_DAY, "join_key": row["join_key"]} if other_day else row)
        elif not other_day and is_single(row):
            # Rows of one id may belong to different sets: they meet before they are dealt to these.
            self._joined.add({**row, "join_key": f"{SAME_ID}{row['request_id']}\x1f{row['model']}"})
        elif not other_day:
            self._own.add(settled(row, self._plan))

    def _is_of_the_day(self, timestamp: int | None) -> None:
        if timestamp is not None:
            self._counts["dated"] += 1
            self._own_days.add(timestamp // DAY)

    def _around(self, item: LogRecord | CallPart) -> None:
        for row in around(item):
            self._joined.add(row)

    def _elsewhere(self, timestamp: int | None) -> bool:
        """Whether a row belongs to another day; where folders are named by days, the folder has said."""
        return not self._plan.snapshot.by_folder and timestamp is not None and timestamp not in self._day

    def finished(self) -> dict[str, Any]:
        self._own.flush()
        self._joined.flush()
        accounting = Accounting(
            rows_in=self._counts["rows_in"],
            other_day=self._counts["other_day"],
            no_answer=sum(self._no_answer.values()),
            together=self._counts["together"],
            bytes_unread=self._counts["bytes_unread"],
            no_answer_by_kind=dict(sorted(self._no_answer.items())),
            by_format=dict(sorted(self._formats.items())),
        )
        return {
            "accounting": accounting.to_json(),
            "dated": self._counts["dated"],
            "own_days": [str(day_of(number * DAY)) for number in sorted(self._own_days)],
            "faults": sorted(self._faults),
            "no_answer": dict(sorted(self._no_answer.items())),
            "lines": {str(number): lines for number, lines in sorted(self._lines.items())},
            OWN: self._own.counted(),
            JOINED: self._joined.counted(),
        }


def _microseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
