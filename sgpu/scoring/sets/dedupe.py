"""Deliveries repeat: which rows are one request, which contradict each other, which were scored before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sgpu.logs.records import Reason
from sgpu.scoring.sets.content import part_with

# A request: the model that answered it, and its id. Ids are given by clients, and two models may share them.
Key = tuple[str | None, str]
# Where a row stands: split of the logs and line in it; None: not from a line.
Place = tuple[int, int | None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request that could be scored; ``places`` are the rows of the logs that it is made of.

    ``content`` identifies what was answered (`content.content_sha256`), ``ordered`` does so in tables that
    version 0.1 wrote. Without ``texts`` it has to be
    sampled anew from its ``prompt``, and ``reason`` says why.
    """

    request_id: str
    content: str
    places: tuple[Place, ...]
    timestamp: int
    model: str
    route: str | None
    texts: tuple[str, ...]
    status: str = "ok"
    label: int | None = None
    members: tuple[str, ...] | None = None
    prompt: str | None = None
    reason: Reason | None = None
    ordered: str | None = None

    @property
    def key(self) -> Key:
        return self.model, self.request_id


@dataclass(frozen=True, slots=True)
class Refused:
    """One row of the logs for the quarantine."""

    place: Place
    reason: Reason
    detail: str
    request_id: str | None = None
    timestamp: int | None = None
    model: str | None = None
    route: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What is committed for a request. ``replaced``: this run writes the day anew."""

    content: str
    day: str
    replaced: bool = False


@dataclass
class Decision:
    """Every row is in exactly one place: to be scored, refused, or counted."""

    to_score: list[Candidate] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    duplicates: int = 0
    already: int = 0


def decide(candidates: Iterable[Candidate], committed: Mapping[Key, Standing]) -> Decision:
    """Which of the requests are new. All rows of a request id have to be here; the first in the logs counts.

    The same answers in another order are the same, and a row that holds all answers of the others replaces
    them. What is committed stays: a row with other content is refused, also one that has grown since. Of rows
    that contradict each other while nothing is committed, all are refused, since nobody knows which is right.
    """
    decision = Decision()
    by_key: dict[Key, list[Candidate]] = {}
    for candidate in sorted(candidates, key=_order):
        by_key.setdefault(candidate.key, []).append(candidate)
    for key, rows in by_key.items():
        _settle(rows, committed.get(key), decision)
    return decision


def refusals(candidate: Candidate, reason: Reason, detail: str) -> Iterator[Refused]:
    """One for each of its rows."""
    about = candidate.timestamp, candidate.model, candidate.route
    names = candidate.members or (candidate.request_id,) * len(candidate.places)
    for place, name in zip(candidate.places, names, strict=True):
        yield Refused(place, reason, detail, name, *about)


def _order(candidate: Candidate) -> tuple[str, int, int]:
    split, line = candidate.places[0]
    return candidate.request_id, split, line or 0


def _settle(rows: list[Candidate], standing: Standing | None, decision: Decision) -> None:
    whole = _whole(rows)
    if standing and (whole is None or not standing.replaced or _grown(whole, standing) is None):
        whole = next((row for row in rows if _is(row, standing)), None)
    scored = False
    for row in rows:
        if whole is None or not _is_part(row, whole):
            decision.refused += _contradicted(row, standing)
        elif standing and not standing.replaced:
            decision.already += len(row.places)
        elif scored or row.content != whole.content:
            decision.duplicates += len(row.places)
        else:
            decision.to_score.append(row)
            scored = True


def _whole(rows: Sequence[Candidate]) -> Candidate | None:
    """The first of the rows that hold all answers of the others; None if they contradict each other."""
    largest = max(rows, key=lambda row: len(row.texts))
    return largest if all(_is_part(row, largest) for row in rows) else None


def _is_part(row: Candidate, whole: Candidate) -> bool:
    """Whether it has the same answers or some of them."""
    if row.content == whole.content:
        return True
    return 0 < len(row.texts) < len(whole.texts) and not Counter(row.texts) - Counter(whole.texts)


def _is(row: Candidate, standing: Standing) -> bool:
    return standing.content in (row.content, row.ordered)


def _grown(row: Candidate, standing: Standing) -> int | None:
    """How many of its answers are committed, which are the first of them; None if it is another request."""
    if _is(row, standing):
        return len(row.texts)
    return None if row.members else part_with(standing.content, row.model, row.texts)


def _contradicted(row: Candidate, standing: Standing | None) -> Iterator[Refused]:
    where = f"committed for {standing.day}" if standing else "in these logs"
    if standing and (known := _grown(row, standing)):
        detail = f"its first {known} answers were scored for {standing.day}; --rescore of that day takes all"
        return refusals(row, Reason.GREW, detail)
    return refusals(row, Reason.CONFLICT, f"another row with this request id and other content is {where}")
