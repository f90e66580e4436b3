"""Single answers to one question, asked again and again, are the response set of that question."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sgpu.logs.records import MAX_SAMPLES, Reason
from sgpu.scoring.sets.dedupe import Candidate, Decision, decide, refusals

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
    answers: Mapping[str, Sequence[Candidate]], committed: Mapping[str, CommittedSet]
) -> tuple[list[Candidate], Decision]:
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


def _late(members: Sequence[Candidate], before: CommittedSet, rest: Decision) -> None:
    detail = f"its set of {len(before.members)} answers was scored before this one came"
    for one in members:
        rest.refused += refusals(one, Reason.LATE_FOR_GROUP, detail)


def _one_set(set_id: str, members: Sequence[Candidate], rest: Decision) -> Candidate | None:
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
