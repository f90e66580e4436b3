"""Deliveries repeat: which rows are one request, which contradict each other, which were scored before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sgpu.scoring.records import Reason

# Where a row stands: split of the logs and line in it; None: not from a line.
Place = tuple[int, int | None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request that could be scored; ``places`` are the rows of the logs that it is made of.

    ``content`` identifies what was answered (`work_rows.content_sha256`). Without ``texts`` it has to be
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
    """What is committed for a request id. ``replaced``: this run writes the day anew."""

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


def decide(candidates: Iterable[Candidate], committed: Mapping[str, Standing]) -> Decision:
    """Which of the requests are new. All rows of a request id have to be here; the first in the logs counts.

    What is committed stays: a row with other content is refused. Of rows that contradict each other while
    nothing is committed, all are refused, since nobody knows which one is right.
    """
    decision = Decision()
    by_id: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=_order):
        by_id.setdefault(candidate.request_id, []).append(candidate)
    for request_id, rows in by_id.items():
        _settle(rows, committed.get(request_id), decision)
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
    contents = {row.content for row in rows}
    kept = standing.content if standing else next(iter(contents)) if len(contents) == 1 else None
    scored = False
    for row in rows:
        if row.content != kept:
            where = f"committed for {standing.day}" if standing else "in these logs"
            detail = f"another row with this request id and other content is {where}"
            decision.refused += refusals(row, Reason.CONFLICT, detail)
        elif standing and not standing.replaced:
            decision.already += len(row.places)
        elif scored:
            decision.duplicates += len(row.places)
        else:
            decision.to_score.append(row)
            scored = True
