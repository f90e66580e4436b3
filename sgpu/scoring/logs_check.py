"""`sgpu logs check`: what the first rows of each file are read as, without a model and without writing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import groupby
from pathlib import PurePosixPath

from rich.console import Console
from rich.table import Table

from sgpu.errors import DataError
from sgpu.logs.formats import AUTO
from sgpu.logs.formats.mapped import FieldMap
from sgpu.logs.reading import SplitEnd, SplitItem, read_split
from sgpu.logs.records import BatchPrompt, CallPart, LogRecord, NoAnswer, Rejected
from sgpu.logs.rows.telemetry import assembled
from sgpu.logs.snapshot import ROOT, Snapshot, Split, day_of_folder, list_folder, splits_of, take_snapshot
from sgpu.scoring.outcome import wide_enough
from sgpu.storage.location import Location
from sgpu.visible import visible

WHOLE = 2**62  # bytes of a split: a file is read from its start
MOST_FILES = 200
NOTHING = 3  # exit code where no row could be scored


@dataclass
class FileCheck:
    """What the rows of one file are. ``cut``: there are more rows than were looked at."""

    path: str
    rows: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    sets: int = 0  # requests with two usable answers or more
    singles: int = 0
    refused: int = 0
    without: int = 0
    cut: bool = False


@dataclass
class LogsCheck:
    """All files together. ``refused``: by reason the rows, the first place and what is said of it."""

    files: list[FileCheck] = field(default_factory=list)
    refused: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    without: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    groups: Counter[str] = field(default_factory=Counter)
    joined: dict[str, LogRecord] = field(default_factory=dict)
    prompts: dict[str, BatchPrompt] = field(default_factory=dict)
    answers: dict[str, list[CallPart]] = field(default_factory=dict)
    about: dict[str, list[CallPart]] = field(default_factory=dict)
    beneath: dict[str, list[str]] = field(default_factory=dict)
    unread: int = 0  # files beyond the bound

    @property
    def sets(self) -> int:
        """Requests and sets of single answers that could be scored."""
        return sum(file.sets for file in self.files) + sum(count > 1 for count in self.groups.values())


def check_logs(path: str, format: str = AUTO, map: FieldMap | None = None, rows: int = 1000) -> LogsCheck:
    """Look at the first ``rows`` rows of each file. DataError where there is no file."""
    logs, check = Location.of(path), LogsCheck()
    for snapshot, split in _files(logs):
        if len(check.files) >= MOST_FILES:
            check.unread += 1
            continue
        reading = read_split(logs, snapshot, split, format, map, keep_prompts=True)
        _read(check, snapshot.files[split.file].path, reading, rows)
    if not check.files:
        raise DataError(f"{path} holds no files. Give a file of logs, or the folder that holds them.")
    _join(check)
    return check


def _files(logs: Location) -> Iterator[tuple[Snapshot, Split]]:
    """The first split of every file, whichever day its folder names."""
    days = sorted(set(_days(logs, ROOT))) if not logs.is_file() else []
    listed: set[str] = set()
    for day in days or [datetime.now(UTC).date()]:
        snapshot = take_snapshot(logs, day)
        for _, splits in groupby(splits_of(snapshot, WHOLE), key=lambda split: split.file):
            split = next(splits)
            if (name := snapshot.files[split.file].path) not in listed:
                listed.add(name)
                yield snapshot, split


def _days(logs: Location, folder: PurePosixPath) -> Iterator[date]:
    own = day_of_folder(logs.name)
    if own is not None:
        yield own
        return
    for entry in list_folder(logs, folder):
        if entry.is_folder and not entry.name.startswith((".", "_")):
            day = day_of_folder(entry.name)
            yield from [day] if day is not None else _days(logs, folder / entry.name)


def _read(check: LogsCheck, path: str, reading: Iterable[SplitItem], rows: int) -> None:
    file = FileCheck(path)
    check.files.append(file)
    for item in reading:
        if isinstance(item, SplitEnd):
            file.formats = item.formats
            break
        line, content = item
        if line is not None and line > rows:
            file.cut = True
            break
        file.rows = max(file.rows, line or 0)
        _take(check, file, line, content)


def _take(check: LogsCheck, file: FileCheck, line: int | None, item: object) -> None:
    match item:
        case LogRecord():
            check.examples.setdefault(file.path, _shown(item))
            if item.join_key is not None:
                check.joined[item.join_key] = item
            if len(item.samples) > 1:
                file.sets += 1
            else:
                file.singles += 1
                check.groups.update([item.group_key] if item.group_key is not None else [])
        case Rejected():
            file.refused += 1
            count, first, detail = check.refused.get(str(item.reason), (0, "", ""))
            where = file.path if line is None else f"{file.path}, line {line}"
            check.refused[str(item.reason)] = (count + 1, first or where, detail or item.detail)
        case BatchPrompt():
            check.prompts[item.join_key] = item
        case CallPart():
            check.answers.setdefault(item.request_id, []).append(item)
        case NoAnswer(kind, part):
            file.without += 1
            check.without[kind] += 1
            if part is not None:
                check.about.setdefault(part.request_id, []).append(part)
                check.beneath.setdefault(part.around or "", []).append(part.model or "")


def _join(check: LogsCheck) -> None:
    """What needs rows of other files: batches, and calls that telemetry writes in pieces."""
    for key, record in check.joined.items():
        prompt = check.prompts.get(key)
        if len(record.samples) == 1 and prompt is not None and prompt.group_key is not None:
            check.groups[prompt.group_key] += 1
    calls = FileCheck("calls in events, joined")
    for call_id, parts in check.answers.items():
        beneath = [model for model in check.beneath.get(call_id, []) if model]
        calls.rows += len(parts)
        item = assembled(call_id, [*parts, *check.about.get(call_id, [])], beneath)
        _take(check, calls, None, item)
    if check.answers:
        check.files.append(calls)


def _shown(record: LogRecord) -> str:
    """What a record becomes, without its texts."""
    time = datetime.fromtimestamp(record.timestamp / 1e6, UTC).isoformat(sep=" ", timespec="seconds")
    lengths = ", ".join(str(len(sample.text)) for sample in record.samples[:5])
    more = ", ..." if len(record.samples) > 5 else ""
    question = "question known" if record.prompt_sha256 else "no question"
    route = f", route {record.route}" if record.route else ""
    return visible(
        f"{record.request_id}, {time}, model {record.model}{route}: {len(record.samples)} answers of "
        f"{lengths}{more} characters, {question}"
    )


def show_logs_check(check: LogsCheck, console: Console) -> None:
    """Print a line per file, why rows are refused, and what one record of each file becomes."""
    table = Table("file", box=None, pad_edge=False)
    for name in ("rows", "sets", "single", "refused", "no answer"):
        table.add_column(name, justify="right")
    table.add_column("read as")
    for file in check.files:
        read_as = ", ".join(f"{name} {count:,}" for name, count in file.formats.most_common())
        numbers = (file.sets, file.singles, file.refused, file.without)
        rows = f"{file.rows:,}{'+' if file.cut else ''}"
        table.add_row(visible(file.path), rows, *(f"{n:,}" for n in numbers), read_as)
    wide_enough(console).print(table)
    _say(console, "\nrefused:", [
        f"{count:,} {reason}: {visible(detail)} ({visible(first)})"
        for reason, (count, first, detail) in sorted(check.refused.items(), key=lambda item: -item[1][0])
    ])  # fmt: skip
    _say(console, "\nwithout an answer:", [
        ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in check.without.most_common())
    ] if check.without else [])  # fmt: skip
    _say(
        console,
        "\na record becomes:",
        [f"{visible(path)}: {text}" for path, text in check.examples.items()][:10],
    )
    answers = sum(check.groups.values())
    kept = sum(count for count in check.groups.values() if count > 1)
    grouped = (
        f"; {kept:,} of {answers:,} single answers have a second one to their question" if answers else ""
    )
    more = f" {check.unread:,} more files were not looked at." if check.unread else ""
    _say(console, f"\n{check.sets:,} requests could be scored{grouped}.{more}", [])


def _say(console: Console, title: str, lines: Sequence[str]) -> None:
    if lines or title.endswith("."):
        console.print(title, markup=False, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
