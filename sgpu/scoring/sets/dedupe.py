"""What was answered, as a hash: by it a delivery is known to be the same again, or the same and more."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from sgpu.hashing import sha256_hex
from sgpu.logs.records import MAX_SAMPLES, Reason


def content_sha256(model: str | None, texts: Sequence[str]) -> str:
    """Return the sha256 of a model's name and answers, whatever the order of the answers."""
    return _combined(model, map(_sha256, texts))


def part_with(content: str, model: str | None, texts: Sequence[str]) -> int | None:
    """Return how many of the first answers have this content; None if no number of them does."""
    hashes = list(map(_sha256, texts[:-1]))
    return next((n for n in range(1, len(texts)) if _combined(model, hashes[:n]) == content), None)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _combined(model: str | None, hashes: Iterable[str]) -> str:
    """Hash a model's name and hashes of answers, each with its length, so that no two lists look alike."""
    digest = hashlib.sha256()
    for text in (model or "", *sorted(hashes)):
        payload = text.encode("utf-8", "surrogatepass")
        digest.update(len(payload).to_bytes(8, "big") + payload)
    return digest.hexdigest()


# A request: the model that answered it, and its id. Ids are given by clients, and two models may share them.
Key = tuple[str | None, str]


class Fate(StrEnum):
    """What becomes of a row of the logs: each has one."""

    SCORED = "scored"
    REFUSED = "refused"
    DUPLICATE = "duplicate"
    ALREADY = "already"


@dataclass(frozen=True, slots=True)
class ScoreCandidate:
    """A request that could be scored; ``items`` are the rows of the logs that it is made of, by number.

    ``content`` identifies what was answered (`content_sha256`), ``asked`` the question. ``texts`` are held
    where rows with one id have to be compared. One that is not ``answered`` has to be sampled anew, and
    ``reason`` says why; one that is ``askable`` comes with its question.
    """

    request_id: str
    content: str
    items: tuple[int, ...]
    timestamp: int
    model: str | None
    route: str | None = None
    texts: tuple[str, ...] = ()
    answered: bool = True
    askable: bool = False
    asked: str | None = None
    status: str = "ok"
    label: int | None = None
    members: tuple[str, ...] | None = None
    reason: Reason | None = None

    @property
    def key(self) -> Key:
        return self.model, self.request_id


@dataclass(frozen=True, slots=True)
class ItemFate:
    """Of one row; ``reason`` and ``detail`` for the quarantine."""

    item: int
    fate: Fate
    reason: Reason | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class CommittedRequest:
    """What is committed for a request. ``replaced``: this run writes the day anew."""

    content: str
    day: str
    replaced: bool = False


@dataclass
class Decision:
    """Every row is in exactly one place: in a request to be scored, or with its fate."""

    to_score: list[ScoreCandidate] = field(default_factory=list)
    fates: list[ItemFate] = field(default_factory=list)

    def give(
        self, candidate: ScoreCandidate, fate: Fate, reason: Reason | None = None, detail: str | None = None
    ) -> None:
        """All its rows have this fate."""
        self.fates += [ItemFate(item, fate, reason, detail) for item in candidate.items]


def decide(candidates: Iterable[ScoreCandidate], committed: Mapping[Key, CommittedRequest]) -> Decision:
    """Which of the requests are new. All rows of a request id have to be here, in the order of the logs.

    The same answers in another order are the same, and a row that holds all answers of the others replaces
    them. What is committed stays: a row with other content is refused, also one that has grown since. Of rows
    that contradict each other while nothing is committed, all are refused, since nobody knows which is right.
    """
    decision = Decision()
    by_key: dict[Key, list[ScoreCandidate]] = {}
    for candidate in candidates:
        by_key.setdefault(candidate.key, []).append(candidate)
    for key, rows in by_key.items():
        _settle(rows, committed.get(key), decision)
    return decision


def _settle(rows: list[ScoreCandidate], standing: CommittedRequest | None, decision: Decision) -> None:
    whole = _whole(rows)
    if standing and (whole is None or not standing.replaced or _grown(whole, standing) is None):
        whole = next((row for row in rows if row.content == standing.content), None)
    scored = False
    for row in rows:
        if whole is None or not _is_part(row, whole):
            _contradict(row, standing, decision)
        elif standing and not standing.replaced:
            decision.give(row, Fate.ALREADY)
        elif scored or row.content != whole.content:
            decision.give(row, Fate.DUPLICATE)
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


def _grown(row: ScoreCandidate, standing: CommittedRequest) -> int | None:
    """How many of its answers are committed, which are the first of them; None if it is another request."""
    if row.content == standing.content:
        return len(row.texts)
    return None if row.members else part_with(standing.content, row.model, row.texts)


def _contradict(row: ScoreCandidate, standing: CommittedRequest | None, decision: Decision) -> None:
    if standing and (grown := _grown(row, standing)):
        detail = f"its first {grown} answers were scored for {standing.day}; --rescore of that day takes all"
        decision.give(row, Fate.REFUSED, Reason.GREW, detail)
        return
    where = f"committed for {standing.day}" if standing else "in these logs"
    detail = f"another row with this request id and other content is {where}"
    decision.give(row, Fate.REFUSED, Reason.CONFLICT, detail)


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


def grouped(
    set_id: str, answers: Sequence[ScoreCandidate], elsewhere: Container[Key] = (), scored: int | None = None
) -> Decision:
    """The set of single answers (in the order of the logs), and what became of those that are not in it.

    ``scored``: of how many answers the set is committed; one that comes then is late, as a set is never
    scored twice. An answer that is ``elsewhere``, in another committed set since it was delivered before with
    another clock or under another window, stays there. ``content`` of a set is that of its members.
    """
    decision = decide(answers, {})
    members = sorted(decision.to_score, key=lambda answer: (answer.timestamp, answer.request_id))
    decision.to_score = []
    for answer in members:
        if answer.key in elsewhere:
            decision.give(answer, Fate.ALREADY)
        elif scored is not None:
            detail = f"its set of {scored} answers was scored before this one came"
            decision.give(answer, Fate.REFUSED, Reason.LATE_FOR_GROUP, detail)
    if scored is None:
        _one_set(set_id, [answer for answer in members if answer.key not in elsewhere], decision)
    return decision


def _one_set(set_id: str, members: Sequence[ScoreCandidate], decision: Decision) -> None:
    for late in members[MAX_SAMPLES:]:
        detail = f"its set has its {MAX_SAMPLES} answers, the first of {len(members)}"
        decision.give(late, Fate.REFUSED, Reason.GROUP_FULL, detail)
    members = members[:MAX_SAMPLES]
    if not members:
        return
    first = members[0]
    if len(members) == 1 and not first.askable:
        detail = "no second answer to its question in its window of time"
        decision.give(first, Fate.REFUSED, Reason.TOO_FEW, detail)
        return
    content = sha256_hex("\n".join(f"{answer.request_id} {answer.content}" for answer in members))
    made = replace(
        first,
        request_id=set_id,
        content=content,
        items=tuple(answer.items[0] for answer in members),
        answered=len(members) > 1,
        status="grouped",
        label=_common({answer.label for answer in members}),
        members=tuple(answer.request_id for answer in members),
        route=_common({answer.route for answer in members}),
        reason=Reason.TOO_FEW if len(members) == 1 else None,
    )
    decision.to_score.append(made)


def _common(values: set[T]) -> T | None:
    """The value that all have; None where they differ."""
    return values.pop() if len(values) == 1 else None
