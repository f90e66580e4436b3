"""Where every row of the logs went. The classes are disjoint, and together they are all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sgpu.errors import DataError, StageError
from sgpu.logs.records import Reason

# Rows for these reasons hold no request with an answer, so that nobody could have scored them.
NOT_REQUESTS = {
    Reason.NOT_JSON, Reason.MISSING_FIELD, Reason.BAD_VALUE, Reason.FAILED_REQUEST, Reason.NO_OUTPUT,
    Reason.ENCODING, Reason.CLOCK, Reason.UNKNOWN_FORMAT,
}  # fmt: skip

# Sound records that cannot be scored, which is no fault of the logs: most traffic has no second answer, and a
# batch may be answered on the next day.
SOUND = {
    Reason.TOO_FEW, Reason.REFUSAL, Reason.TOOL_CALL, Reason.CONTENT_FILTER, Reason.EMPTY, Reason.NO_OUTPUT,
    Reason.LATE_FOR_GROUP, Reason.GREW, Reason.GROUP_FULL,
}  # fmt: skip


# Of the rows that were read; each is in one.
_CLASSES = (
    "scored_rows", "quarantined", "duplicates", "already", "other_day", "no_answer", "prompts", "together",
)  # fmt: skip


@dataclass(frozen=True)
class Accounting:
    """Rows of one day's logs by what became of them.

    ``rows_in`` are the rows of the files, blank lines among them. ``scored_rows`` went into the
    ``requests_scored`` of this run; they differ where single answers were grouped. ``already`` are committed
    by an earlier run, ``other_day`` belong to another day, ``no_answer`` hold none by design
    (``no_answer_by_kind``), ``prompts`` are the input lines of batches. ``file_faults`` are not rows: how
    many of the ``files`` are faulty as a whole, or are not logs, by reason. ``nested``: requests of telemetry
    with answers whose span lies in another with answers, in another line or file: one call may be counted as
    two.
    ``together``: rejected rows beyond the first of their file, for all of which one row stands in quarantine.
    ``bytes_unread``: of files above the bounds; what they hold is in no count.
    """

    rows_in: int = 0
    scored_rows: int = 0
    quarantined: int = 0
    duplicates: int = 0
    already: int = 0
    other_day: int = 0
    no_answer: int = 0
    prompts: int = 0
    requests_scored: int = 0
    requests_before: int = 0  # of this day, committed by earlier runs
    files: int = 0
    by_reason: Mapping[str, int] = field(default_factory=dict)
    file_faults: Mapping[str, int] = field(default_factory=dict)
    by_format: Mapping[str, int] = field(default_factory=dict)
    no_answer_by_kind: Mapping[str, int] = field(default_factory=dict)
    nested: int = 0
    together: int = 0
    bytes_unread: int = 0

    def __add__(self, other: Accounting) -> Accounting:
        return Accounting(
            **{f.name: _sum(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        )

    def check(self) -> None:
        """Raise StageError if a row was lost or counted twice."""
        accounted = sum(getattr(self, name) for name in _CLASSES)
        if accounted != self.rows_in or sum(self.by_reason.values()) != self.quarantined:
            raise StageError(
                f"{self.rows_in} rows were read and {accounted} accounted for ({self.line()}). Nothing was "
                "published. Run the same command again; if it happens twice, report it."
            )

    @property
    def bad_share(self) -> float:
        """Return the share of faulty rows among the requests of the day.

        Rows of other days, and those that hold no answer by design, would only hide the faulty ones. Sound
        requests without a second answer are in quarantine too, but tell nothing of the logs' health.
        """
        faulty = sum(n for reason, n in self.by_reason.items() if reason not in SOUND) + self.together
        requests = self.scored_rows + self.quarantined + self.duplicates + self.already + self.together
        return faulty / requests if requests else 0.0

    @property
    def faulty_files(self) -> Mapping[str, int]:
        """Return ``file_faults`` without the files that are not logs."""
        return {reason: n for reason, n in self.file_faults.items() if reason != Reason.NOT_A_LOG}

    @property
    def bad_file_share(self) -> float:
        """Return the share of faulty files among those that are logs."""
        logs = self.files - self.file_faults.get(Reason.NOT_A_LOG, 0)
        return min(1.0, sum(self.faulty_files.values()) / logs) if logs else 0.0

    @property
    def scoreable_share(self) -> float | None:
        """Of the requests that carry an answer, those that are scored now or were before; None of none.

        Rows without an answer are not part of it: `no_answer_by_kind` says how many there are.
        """
        scored = self.scored_rows + self.already
        failed = sum(n for reason, n in self.by_reason.items() if reason not in NOT_REQUESTS)
        return scored / (scored + failed) if scored + failed else None

    @property
    def scoreable(self) -> str:
        """`scoreable_share` for a person; of files that were not read whole nobody knows it all."""
        if (share := self.scoreable_share) is None:
            return ""
        return f"at least {share:.1%}" if self.bytes_unread else f"{share:.1%}"

    def line(self) -> str:
        """For a person."""
        return ", ".join(f"{getattr(self, name)} {name.replace('_', ' ')}" for name in _CLASSES)

    def to_json(self) -> dict[str, Any]:
        shares = ("bad_share", "bad_file_share", "scoreable_share")
        return {**asdict(self), **{name: getattr(self, name) for name in shares}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Accounting:
        """Raises DataError for what `to_json` did not write."""
        try:
            return cls(**{field.name: content[field.name] for field in fields(cls)})
        except (KeyError, TypeError) as error:
            raise DataError(f"an accounting cannot be read ({error}); score the day again") from error


def _sum(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, int):
        return ours + theirs
    total = Counter(ours)
    total.update(theirs)
    return dict(sorted(total.items()))
