"""All usable records of a response file, and what was wrong with each of the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgpu.datasets.response_files import read_rows
from sgpu.datasets.response_rows import MIN_ANSWERS, REQUIRED, ResponseRow, RowError, parse_row
from sgpu.errors import DataError


@dataclass(frozen=True)
class Rejected:
    """A quarantined record: where it stands (row from 1; line in JSON Lines only), why, and what to do."""

    file: str
    row: int
    line: int | None
    question_id: str | None
    reason: str
    remedy: str


class ResponseReading:
    """One pass over the file: the good rows by id, the quarantined ones, and the counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._good: dict[str, tuple[ResponseRow, int, int | None]] = {}
        self.quarantined: list[Rejected] = []
        self.columns: set[str] = set()
        self.n_duplicates = 0
        self.n_rows = 0
        for raw in read_rows(path):
            self.n_rows += 1
            if raw.record is None:
                fault = f"the line {raw.fault}"
                self._reject(raw.row, raw.line, None, RowError(fault, "Write one JSON object per line."))
            else:
                self.columns.update(raw.record, raw.unread)
                self._take(raw.row, raw.line, raw.record)
        absent = [column for column in REQUIRED if column not in self.columns]
        if self.n_rows == 0 or (absent and self.columns):
            what = f"has no column {', '.join(map(repr, absent))}" if self.columns else "has no rows"
            found = ", ".join(sorted(self.columns)) or "none"
            raise DataError(f"{path}: {what}. Needed: {', '.join(REQUIRED)}. Found: {found[:300]}.")

    def rows_of_equal_count(self, n: int | None) -> tuple[dict[str, ResponseRow], int]:
        """The good rows cut to ``n`` answers, or to the most common count; shorter ones quarantined."""
        chosen = n or self._common_count()
        kept = {}
        for question_id, (row, number, line) in self._good.items():
            if len(row.answers) >= chosen:
                kept[question_id] = _first_answers(row, chosen)
                continue
            reason = f"answers has {len(row.answers)} entries, below the {chosen} of this cell"
            remedy = "Sample the rest, or set n to a smaller number for all rows."
            self._reject(number, line, question_id, RowError(reason, remedy))
        self._reject_without_split(kept)
        return kept, chosen

    def rows_of_any_count(self, n: int | None) -> tuple[dict[str, ResponseRow], int]:
        """The good rows with all their answers; and ``n``, or the most common count."""
        kept = {question_id: row for question_id, (row, _, _) in self._good.items()}
        self._reject_without_split(kept)
        return kept, n or self._common_count()

    def _common_count(self) -> int:
        counts = Counter(len(row.answers) for row, _, _ in self._good.values())
        return min(counts, key=lambda count: (-counts[count], count), default=MIN_ANSWERS)

    def _reject_without_split(self, kept: dict[str, ResponseRow]) -> None:
        """One row without a split among rows that have one: its side is not ours to choose."""
        if any(row.split for row in kept.values()):
            for question_id in [key for key, row in kept.items() if row.split is None]:
                _, number, line = self._good[question_id]
                error = RowError("split is missing while other rows have one", "Give every row a split.")
                self._reject(number, line, question_id, error)
                del kept[question_id]

    def _take(self, number: int, line: int | None, record: dict[str, Any]) -> None:
        try:
            row = parse_row(record)
            earlier = self._good.get(row.question_id)
            if earlier is None:
                self._good[row.question_id] = (row, number, line)
            elif earlier[0] == row:
                self.n_duplicates += 1
            else:
                raise RowError(
                    f"question_id was already used by row {earlier[1]} with other content",
                    "Give each response set its own question_id.",
                )
        except RowError as error:
            question_id = record.get("question_id")
            self._reject(
                number, line, ascii(question_id)[1:81] if isinstance(question_id, str) else None, error
            )

    def _reject(self, number: int, line: int | None, question_id: str | None, error: RowError) -> None:
        self.quarantined.append(
            Rejected(str(self._path), number, line, question_id, error.reason, error.remedy)
        )


def _first_answers(row: ResponseRow, n: int) -> ResponseRow:
    logprobs = row.token_logprobs[:n] if row.token_logprobs is not None else None
    return replace(row, answers=row.answers[:n], token_logprobs=logprobs)
