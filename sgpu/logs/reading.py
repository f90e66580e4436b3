"""Reads one split of a day's logs: every line becomes one item at least, whatever it holds.

Times: where a folder names the day, a row's own time is kept as it is. Where none does, the time has to tell
the day, and a clock that cannot be right is CLOCK: before 2015, after 2100, or more than a day after both the
end of the day that is scored and the last change of the file (a backfill finds rows of later days in a file:
those are sound). Rows of other days are handed on, and whoever counts them decides by `Snapshot.by_folder`;
only those of a file beside day folders are NoAnswer("other_day_beside_folders").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any

from sgpu.logs.budget import BOUNDS, FileBounds, FileBudget
from sgpu.logs.formats import AUTO, FormatReader
from sgpu.logs.formats.mapped import FieldMap
from sgpu.logs.parquet_process import read_split_rows
from sgpu.logs.parquet_rows import Begun, Skipped
from sgpu.logs.pinned_file import FileFault, PinnedFile, is_pretty, lines_of, may_be_logs
from sgpu.logs.records import UNDATED, BatchPrompt, CallPart, Item, LogRecord, NoAnswer, Reason, Rejected
from sgpu.logs.rows.fields import DAY, FIRST_TIME, LAST_TIME, RowFault, parsed, start_of
from sgpu.logs.snapshot import LogFile, Snapshot, Split
from sgpu.storage.json_lines import BYTE_ORDER_MARK, EXTENSIONS, MAX_LINE_BYTES, FileKind, RawLine, kind_of
from sgpu.storage.location import Location

PRETTY = "pretty-printed JSON, one record over many lines; write one record a line: jq -c '.[]?' or jq -c ."


@dataclass(frozen=True)
class SplitEnd:
    """The last thing of a split. ``lines``: how many it has, empty ones too. ``formats``: rows by adapter.

    ``unread``: bytes that were not read, as more would have been above the bounds of a file.
    """

    lines: int
    formats: Counter[str]
    unread: int = 0


SplitItem = tuple[int | None, Item] | SplitEnd


def read_split(
    logs: Location,
    snapshot: Snapshot,
    split: Split,
    format: str = AUTO,
    map: FieldMap | None = None,
    *,
    keep_prompts: bool = False,
    bounds: FileBounds = BOUNDS,
    undated: date | None = None,
) -> Iterator[SplitItem]:
    """Yield the items of a split with their lines (Parquet: rows), counted from 1, and at last a SplitEnd.

    A fault of the file as a whole is one Rejected without line. ``map``: of rows of no known format.
    ``keep_prompts``: records carry the question. ``undated``: the day of records without a
    time, where no folder names days. Raises UsageError for an unknown format, and StageError where object
    storage fails.
    """
    file = snapshot.files[split.file]
    location, root = snapshot.location_of(logs, file)
    formats = FormatReader(format, map)
    reading = _Reading(file, split, formats, FileBudget(bounds, file.size, split))
    clock = _Clock(snapshot, file, undated)
    try:
        for line, item in reading.items(root, location):
            if not keep_prompts and isinstance(item, LogRecord | BatchPrompt | Rejected) and item.prompt:
                item = replace(item, prompt=None)
            yield line, clock.judged(item)
    except FileFault as fault:
        detail = fault.detail
        if over := fault.reason is Reason.OVER_BUDGET:
            detail = f"{reading.unread} of its {file.size} bytes were not read: {detail}"
        yield None, Rejected(fault.reason, detail)
        yield SplitEnd(reading.lines, formats.taken, reading.unread if over else 0)
        return
    yield SplitEnd(reading.lines, formats.taken)


class _Reading:
    """One pass over a split. ``lines``: how many have been read."""

    def __init__(self, file: LogFile, split: Split, formats: FormatReader, budget: FileBudget) -> None:
        self._file = file
        self._split = split
        self._formats = formats
        self._budget = budget
        self._position: Callable[[], int] = lambda: split.start
        self.lines = 0

    @property
    def unread(self) -> int:
        """The bytes of the split that were not read. What is packed may have been, and not unpacked."""
        return max(1, self._split.end - self._position())

    def items(self, root: Location, location: Location) -> Iterator[tuple[int | None, Item]]:
        kind = kind_of(self._file.path)
        with PinnedFile(root, location, self._file) as file:
            if kind is None:
                detail = f"the extension is none of {EXTENSIONS}"
                if may_be_logs(file):
                    raise FileFault(
                        Reason.UNKNOWN_FORMAT, f"{detail}, but the content may be logs; rename it"
                    )
                raise FileFault(Reason.NOT_A_LOG, f"{detail}, and the content is neither JSON nor packed")
            if file.size == 0:
                yield None, NoAnswer("empty_file")
            elif kind is FileKind.PARQUET:
                yield from self._parquet(root, location)
            elif is_pretty(file, kind):
                if self._split.start == 0:
                    raise FileFault(Reason.UNKNOWN_FORMAT, PRETTY)
            else:
                yield from self._json_lines(file, kind)
            file.check_unchanged()

    def _json_lines(self, file: PinnedFile, kind: FileKind) -> Iterator[tuple[int | None, Item]]:
        try:
            self._position = file.tell
            passed = self._budget.unpacked
            for line in lines_of(file, kind, self._split.start, self._split.end, passed):
                self._budget.row()
                self.lines += 1
                for item in self._line_items(line, file):
                    yield self.lines, item
        except FileFault as fault:
            # What was being appended to a compressed file ends in the middle of a block.
            if not (fault.reason is Reason.FILE_TRUNCATED and file.grew):
                raise
            yield None, NoAnswer("unfinished_line")

    def _line_items(self, line: RawLine, file: PinnedFile) -> Iterator[Item]:
        if line.raw is None:
            yield Rejected(Reason.OVERSIZE, f"the line is longer than {MAX_LINE_BYTES} bytes")
            return
        try:
            text = line.raw.decode("utf-8")
            if self.lines == 1 and self._split.start == 0:
                text = text.removeprefix(BYTE_ORDER_MARK)
            record = parsed(text) if text.strip() else None
        except (UnicodeDecodeError, RowFault) as error:
            if not line.ended and file.grew:
                yield NoAnswer("unfinished_line")  # the next run, with a snapshot of its own, finds it whole
            elif isinstance(error, RowFault):
                yield Rejected(error.reason, error.detail)
            else:
                position = f"byte 0x{line.raw[error.start]:02x} at byte {error.start} of the line"
                yield Rejected(Reason.ENCODING, f"not UTF-8: {position}")
            return
        if isinstance(record, dict):
            yield from self._row_items(record)
        elif isinstance(record, list) and record and all(isinstance(row, dict) for row in record):
            for row in record:
                yield from self._row_items(row)
        elif not text.strip():
            yield NoAnswer("empty_line")
        else:
            yield Rejected(Reason.UNKNOWN_FORMAT, f"a JSON {type(record).__name__}, not an object")

    def _parquet(self, root: Location, location: Location) -> Iterator[tuple[int | None, Item]]:
        columns, passed = self._formats.columns, self._budget.unpacked
        for row in read_split_rows(root, location, self._file, self._split, columns, passed):
            if isinstance(row, Begun):
                self._position = partial(int, row.start)
                continue
            if isinstance(row, Skipped):
                self.lines += row.rows
                continue
            self._budget.row()
            self.lines += 1
            if isinstance(row, RowFault):
                yield self.lines, Rejected(row.reason, row.detail)
                continue
            for item in self._row_items(row):
                yield self.lines, item

    def _row_items(self, record: dict[str, Any]) -> Iterator[Item]:
        """What the row's adapter makes of it; whatever it raises, no row ends the night."""
        try:
            yield from self._formats.items(record)
        except Exception as error:
            yield Rejected(Reason.BAD_VALUE, f"unexpected {type(error).__name__} in an adapter")


class _Clock:
    """Whether a row's own time can be right, where it has to tell the day."""

    def __init__(self, snapshot: Snapshot, file: LogFile, undated: date | None) -> None:
        self._dated = file.dated
        self._undated = None if snapshot.by_folder or undated is None else start_of(undated)
        start = start_of(date.fromisoformat(snapshot.day))
        self._day = range(start, start + DAY)
        self._stray = snapshot.by_folder
        self._last = min(LAST_TIME, max(self._day.stop, file.mtime_ns // 1000) + DAY)

    def judged(self, item: Item) -> Item:
        if isinstance(item, LogRecord | Rejected) and item.timestamp == UNDATED:
            if self._dated:
                return replace(item, timestamp=self._day.start)
            if self._undated is not None:
                return replace(item, timestamp=self._undated)
            if isinstance(item, Rejected):
                return replace(item, timestamp=None)
            detail = (
                "the record has no time of its own: put the file into a folder dt=YYYY-MM-DD, "
                "or name the day with --date if there are no such folders"
            )
            about = item.request_id, item.model, item.route
            return Rejected(Reason.MISSING_FIELD, detail, *about, join_key=item.join_key)
        time = None if isinstance(item, NoAnswer | BatchPrompt) else item.timestamp
        if self._dated or time is None:
            return item
        assert isinstance(item, LogRecord | CallPart | Rejected)
        if FIRST_TIME <= time < self._last:
            return NoAnswer("other_day_beside_folders") if self._stray and time not in self._day else item
        # Such a time tells no day: without it the row stands in the quarantine of every day that is scored.
        if isinstance(item, Rejected):
            return replace(item, timestamp=None)
        detail = f"the time is {time} microseconds after 1970, outside 2015 to a day after the log's end"
        join_key = None if isinstance(item, CallPart) else item.join_key
        return Rejected(Reason.CLOCK, detail, item.request_id, item.model, item.route, join_key=join_key)
