"""What was answered, as a hash: by it a delivery is known to be the same again, or the same and more."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sgpu.logs.records import MAX_SAMPLES, Reason


def content_sha256(model: str | None, texts: Sequence[str]) -> str:
    """sha256 of a model's name and answers, in whatever order these stand."""
    return ordered_sha256(model, sorted(map(_sha256, texts)))


def ordered_sha256(model: str | None, texts: Sequence[str]) -> str:
    """sha256 of a model's name and texts, each with its length, so that no two lists look alike.

    Tables that version 0.1 wrote know answers by it.
    """
    digest = hashlib.sha256()
    for text in (model or "", *texts):
        _add(digest, text)
    return digest.hexdigest()


def part_with(content: str, model: str | None, texts: Sequence[str]) -> int | None:
    """How many of the first answers have this content, as either of the others says; None if none have."""
    ordered, hashes = hashlib.sha256(), list[str]()
    _add(ordered, model or "")
    for n, text in enumerate(texts[:-1], start=1):
        _add(ordered, text)
        hashes.append(_sha256(text))
        if content in (ordered.hexdigest(), ordered_sha256(model, sorted(hashes))):
            return n
    return None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _add(digest: Any, text: str) -> None:
    payload = text.encode("utf-8", "surrogatepass")
    digest.update(len(payload).to_bytes(8, "big") + payload)


# A request: the model that answered it, and its id. Ids are given by clients, and two models may share them.
Key = tuple[str | None, str]
# Where a row stands: split of the logs and line in it; None: not from a line.
Place = tuple[int, int | None]


@dataclass(frozen=True, slots=True)
class ScoreCandidate:
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
class CommittedRequest:
    """What is committed for a request. ``replaced``: this run writes the day anew."""

    content: str
    day: str
    replaced: bool = False


@dataclass
class Decision:
    """Every row is in exactly one place: to be scored, refused, or counted."""

    to_score: list[ScoreCandidate] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    duplicates: int = 0
    already: int = 0


def decide(candidates: Iterable[ScoreCandidate], committed: Mapping[Key, CommittedRequest]) -> Decision:
    """Which of the requests are new. All rows of a request id have to be here; the first in the logs counts.

    The same answers in another order are the same, and a row that holds all answers of the others replaces
    them. What is committed stays: a row with other content is refused, also one that has grown since. Of rows
    that contradict each other while nothing is committed, all are refused, since nobody knows which is right.
    """
    decision = Decision()
    by_key: dict[Key, list[ScoreCandidate]] = {}
    for candidate in sorted(candidates, key=_order):
        by_key.setdefault(candidate.key, []).append(candidate)
    for key, rows in by_key.items():
        _settle(rows, committed.get(key), decision)
    return decision


def refusals(candidate: ScoreCandidate, reason: Reason, detail: str) -> Iterator[Refused]:
    """One for each of its rows."""
    about = candidate.timestamp, candidate.model, candidate.route
    names = candidate.members or (candidate.request_id,) * len(candidate.places)
    for place, name in zip(candidate.places, names, strict=True):
        yield Refused(place, reason, detail, name, *about)


def _order(candidate: ScoreCandidate) -> tuple[str, int, int]:
    split, line = candidate.places[0]
    return candidate.request_id, split, line or 0


def _settle(rows: list[ScoreCandidate], standing: CommittedRequest | None, decision: Decision) -> None:
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


def _whole(rows: Sequence[ScoreCandidate]) -> ScoreCandidate | None:
    """The first of the rows that hold all answers of the others; None if they contradict each other."""
    largest = max(rows, key=lambda row: len(row.texts))
    return largest if all(_is_part(row, largest) for row in rows) else None


def _is_part(row: ScoreCandidate, whole: ScoreCandidate) -> bool:
    """Whether it has the same answers or some of them."""
    if row.content == whole.content:
        return True
    return 0 < len(row.texts) < len(whole.texts) and not Counter(row.texts) - Counter(whole.texts)


def _is(row: ScoreCandidate, standing: CommittedRequest) -> bool:
    return standing.content in (row.content, row.ordered)


def _grown(row: ScoreCandidate, standing: CommittedRequest) -> int | None:
    """How many of its answers are committed, which are the first of them; None if it is another request."""
    if _is(row, standing):
        return len(row.texts)
    return None if row.members else part_with(standing.content, row.model, row.texts)


def _contradicted(row: ScoreCandidate, standing: CommittedRequest | None) -> Iterator[Refused]:
    where = f"committed for {standing.day}" if standing else "in these logs"
    if standing and (known := _grown(row, standing)):
        detail = f"its first {known} answers were scored for {standing.day}; --rescore of that day takes all"
        return refusals(row, Reason.GREW, detail)
    return refusals(row, Reason.CONFLICT, f"another row with this request id and other content is {where}")


MICROSECONDS = 1_000_000
T = TypeVar("T")


def group_id(group_key: str, timestamp: int, window_s: int, folder: str = "") -> str:
    """The request id of the set of all answers with this key in one window of time (UTC, counted from 1970).

    ``folder``: the day that the folder of the logs is named by, where it is. Days of another time zone
    so begin within a window, and the sets of one day are never those of the next.
    """
    window = timestamp // (window_s * MICROSECONDS)
    text = f"{window_s}\x1f{window}\x1f{folder}\x1f{group_key}"
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    return f"group-{digest.hexdigest()[:40]}"


@dataclass(frozen=True)
class CommittedSet:
    """A set that is scored: its answers are in it for good. ``replaced``: this run writes its day anew."""

    members: frozenset[str]
    replaced: bool
    model: str | None = None


def grouped(
    answers: Mapping[str, Sequence[ScoreCandidate]], committed: Mapping[str, CommittedSet]
) -> tuple[list[ScoreCandidate], Decision]:
    """The sets of single answers, by the set's id, and what became of the answers that are in none.

    An answer that comes when its set is scored is late: a set is never scored twice. One that is in another
    set, since it was delivered before with another clock or under another window, stays there. ``content`` of
    a set is that of its members.
    """
    sets, rest = [], Decision()
    placed = {(one.model, id_) for one in committed.values() if not one.replaced for id_ in one.members}
    for set_id in sorted(answers):
        before = committed.get(set_id)
        decision = decide(answers[set_id], {})
        rest.refused += decision.refused
        rest.duplicates += decision.duplicates
        members = []
        for one in sorted(decision.to_score, key=lambda one: (one.timestamp, one.request_id)):
            if one.key in placed:
                rest.already += len(one.places)
            else:
                members.append(one)
        if before is not None and not before.replaced:
            _late(members, before, rest)
        elif made := _one_set(set_id, members, rest):
            sets.append(made)
    return sets, rest


def _late(members: Sequence[ScoreCandidate], before: CommittedSet, rest: Decision) -> None:
    detail = f"its set of {len(before.members)} answers was scored before this one came"
    for one in members:
        rest.refused += refusals(one, Reason.LATE_FOR_GROUP, detail)


def _one_set(set_id: str, members: Sequence[ScoreCandidate], rest: Decision) -> ScoreCandidate | None:
    if not members:
        return None
    first = members[0]
    for one in members[MAX_SAMPLES:]:
        detail = f"its set has its {MAX_SAMPLES} answers, the first of {len(members)}"
        rest.refused += refusals(one, Reason.GROUP_FULL, detail)
    members = members[:MAX_SAMPLES]
    if len(members) == 1 and first.prompt is None:
        detail = "no second answer to its question in its window of time"
        rest.refused += refusals(first, Reason.TOO_FEW, detail)
        return None
    content = hashlib.sha256("\n".join(f"{one.request_id} {one.content}" for one in members).encode())
    return replace(
        first,
        request_id=set_id,
        content=content.hexdigest(),
        places=tuple(one.places[0] for one in members),
        texts=tuple(text for one in members for text in one.texts) if len(members) > 1 else (),
        status="grouped",
        label=_common({one.label for one in members}),
        members=tuple(one.request_id for one in members),
        route=_common({one.route for one in members}),
        prompt=first.prompt,
        reason=Reason.TOO_FEW if len(members) == 1 else None,
    )


def _common(values: set[T]) -> T | None:
    """The value that all have; None where they differ."""
    return values.pop() if len(values) == 1 else None
