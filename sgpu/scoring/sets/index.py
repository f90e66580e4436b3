"""What was read, in a few numbers for every unit: where its rows are, and how its lines are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, groupby
from typing import Any

from sgpu.logs.accounting import Accounting
from sgpu.scoring.buckets import Bucket, power_of_two
from sgpu.scoring.plan import Plan
from sgpu.scoring.sets.dedupe import Place
from sgpu.scoring.sets.ingest import OWN
from sgpu.scoring.work_files import read_json, write_json
from sgpu.storage.location import Location

# Characters of answers in a bucket, on average; long answers make small buckets.
BUCKET_CHARACTERS = 64 * 2**20
ROWS_JOINED_AT_ONCE = 50_000


@dataclass(frozen=True)
class Index:
    """``of`` buckets, the ``files`` of rows that are dealt to them, and the lines before each split.

    ``rows`` are in the files, ``accounting`` knows the others. ``files`` are relative to the folder of the
    reading.
    """

    of: int
    files: tuple[str, ...]
    rows: int
    lines_before: tuple[int, ...]
    accounting: Mapping[str, Any] = field(default_factory=dict)
    dated: int = 0  # rows with a time of their own, that are not of another day
    own_days: tuple[str, ...] = ()  # of these times; where folders name the day, they may be any

    @property
    def only_of_other_days(self) -> bool:
        """Whether the logs are those of other days: what has no time of its own is told with these."""
        return not self.dated and bool(self.accounting["other_day"])

    @property
    def buckets(self) -> list[Bucket]:
        return [Bucket(number, self.of) for number in range(self.of)]

    def file_and_line(self, plan: Plan, place: Place) -> tuple[str, int | None]:
        """The file, as the snapshot names it, and the line in it."""
        split, line = place
        name = plan.snapshot.files[plan.splits[split].file].path
        return name, None if line is None else self.lines_before[split] + line

    def save(self, work: Location) -> None:
        write_json(work / "ingest" / "index.json", asdict(self))

    @classmethod
    def load(cls, work: Location) -> Index | None:
        content = read_json(work / "ingest" / "index.json")
        if content is None:
            return None
        tuples = {name: tuple(content[name]) for name in ("files", "lines_before", "own_days")}
        return cls(**{**content, **tuples})


def join_parts(markers: Sequence[Mapping[str, Any]]) -> list[Bucket]:
    """The parts in which what waits for another file is joined; none if nothing does."""
    waiting = sum(content["joined"]["rows"] for content in markers)
    if not waiting:
        return []
    characters = sum(content["joined"]["characters"] for content in markers)
    of = power_of_two(max(waiting / ROWS_JOINED_AT_ONCE, characters / BUCKET_CHARACTERS))
    return [Bucket(number, of) for number in range(of)]


def index_of(
    plan: Plan,
    units: Sequence[Mapping[str, Any]],
    joins: Sequence[Mapping[str, Any]],
) -> Index:
    """The index of all markers, in the order of their numbers."""
    dealt = [content[OWN] for content in (*units, *joins)]
    rows = sum(part["rows"] for part in dealt)
    characters = sum(part["characters"] for part in dealt)
    accounting = sum(
        (Accounting.from_json(content["accounting"]) for content in units),
        _joined(joins)
        + Accounting(
            files=len(plan.snapshot.files),
            file_faults=_file_faults(units),
        ),
    )
    return Index(
        of=power_of_two(max(rows / plan.settings.bucket_rows, characters / BUCKET_CHARACTERS)),
        files=tuple(file for part in dealt for file in part["files"]),
        rows=rows,
        lines_before=_lines_before(plan, units),
        accounting=accounting.to_json(),
        dated=sum(content["dated"] for content in units),
        own_days=tuple(sorted({day for content in units for day in content["own_days"]})),
    )


def _joined(joins: Sequence[Mapping[str, Any]]) -> Accounting:
    """The lines that joining has counted; of a marker of an earlier version, those that it knew."""
    kinds: Counter[str] = Counter()
    for content in joins:
        kinds.update(content.get("no_answer", {}))
    return Accounting(
        prompts=sum(content["prompts"] for content in joins),
        no_answer=sum(kinds.values()),
        no_answer_by_kind=dict(sorted(kinds.items())),
        nested=sum(content.get("nested", 0) for content in joins),
    )


def _file_faults(units: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """By reason the number of files: a file that was read in many parts is one."""
    found = {(file, reason) for content in units for file, reason in content["faults"]}
    return dict(sorted(Counter(reason for _, reason in found).items()))


def _lines_before(plan: Plan, units: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """For each split the lines of its file that stand before it."""
    lines = {int(split): count for content in units for split, count in content["lines"].items()}
    before: list[int] = []
    for _, splits in groupby(plan.splits, key=lambda split: split.file):
        counts = [lines[split.number] for split in splits]
        before += [0, *accumulate(counts[:-1])]
    return tuple(before)
