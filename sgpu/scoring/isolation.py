"""Finds the set that ends its worker or cannot be scored, and scores the others as if it were not there.

A worker that dies takes a whole slice with it, and the slice is tried again. After `TRIES` deaths its sets
are tried in halves until the one that kills is alone; it is given up after `LONE_DEATHS`, because on spot
nodes a worker may die of something else. Then the rest is scored together, as it would have been without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from sgpu.errors import SgpuError, StageError

TRIES = 3
LONE_DEATHS = 2
# More than these many sets of a slice that fail, and more than half of it, are not the fault of the sets.
FEW = 20


class FailureRecord:
    """Plain bookkeeping for all slices, which outlives the workers (in a Ray actor)."""

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()  # tries that were begun and not ended
        self._cleared: set[str] = set()
        self._bad: dict[str, dict[int, str]] = {}
        self._pieces: Counter[str] = Counter()
        self._searching: set[str] = set()

    def state(self, name: str) -> tuple[dict[int, str], int, bool]:
        """The sets that were given up and why, in how many pieces to score, whether a search was begun."""
        return dict(self._bad.get(name, {})), 2 ** self._pieces[name], name in self._searching

    def begin(self, attempt: str) -> int:
        """How many earlier tries ended in a death; -1: it is known to be harmless."""
        if attempt in self._cleared:
            return -1
        self._begun[attempt] += 1
        return self._begun[attempt] - 1

    def end(self, attempt: str) -> None:
        """The try did not kill anybody, whatever came of it."""
        del self._begun[attempt]

    def clear(self, attempt: str) -> None:
        """Whatever was wrong in it is known."""
        self._begun.pop(attempt, None)
        self._cleared.add(attempt)

    def search(self, name: str) -> None:
        self._searching.add(name)

    def give_up(self, name: str, place: int, why: str) -> None:
        self._bad.setdefault(name, {})[place] = why

    def searched(self, name: str, found: int) -> None:
        """A search is over. Where it found nobody, the sets are only too many at a time."""
        self._searching.discard(name)
        if not found:
            self._pieces[name] += 1


# How a worker reaches the `FailureRecord`: by the name of a method, and its arguments.
RecordCall = Callable[..., Any]
Score = Callable[[Sequence[Sequence[str]]], Any]


def scored_apart(
    name: str, sets: Sequence[Sequence[str]], score: Score, failures: RecordCall
) -> tuple[list[int], list[Any], dict[int, str]]:
    """The places of the sets with a result, the results for them in pieces, and why others have none.

    Raises StageError where most sets fail: then it is the machine or the model.
    """
    while True:
        bad, pieces, searching = failures("state", name)
        rest = [place for place in range(len(sets)) if place not in bad]
        attempt = f"{name}/{len(bad)}/{pieces}"
        if not searching and failures("begin", attempt) < TRIES:
            results = _tried(rest, pieces, sets, score)
            failures("end", attempt)
            if results is not None:
                return rest, results, bad
        failures("search", name)
        for part in _halves(range(len(sets))):  # that all together fail is known by now
            _search(name, part, set(bad), sets, score, failures)
        found = len(failures("state", name)[0]) - len(bad)
        if pieces > len(sets) and not found:
            raise StageError(f"{name} cannot be scored, neither together nor set by set")
        failures("searched", name, found)


def _tried(
    places: Sequence[int], pieces: int, sets: Sequence[Sequence[str]], score: Score
) -> list[Any] | None:
    """None if a set of them raises."""
    size = max(1, -(-len(places) // pieces))
    try:
        return [
            score([sets[place] for place in places[start : start + size]])
            for start in range(0, len(places), size)
        ]
    except SgpuError:
        raise
    except Exception:  # which set it was is found out by the caller
        return None


def _search(
    name: str,
    places: range,
    bad: set[int],
    sets: Sequence[Sequence[str]],
    score: Score,
    failures: RecordCall,
) -> None:
    attempt = f"{name}/{places.start}-{places.stop}"
    left = [place for place in places if place not in bad]
    if not left or (deaths := failures("begin", attempt)) < 0:
        return
    if len(places) == 1:
        _alone(name, places.start, sets, score, failures, deaths)
    elif deaths or _tried(left, 1, sets, score) is None:
        for part in _halves(places):
            _search(name, part, bad, sets, score, failures)
    failures("clear", attempt)


def _halves(places: range) -> list[range]:
    half = len(places) // 2
    return [part for part in (places[:half], places[half:]) if part]


def _alone(
    name: str, place: int, sets: Sequence[Sequence[str]], score: Score, failures: RecordCall, deaths: int
) -> None:
    why = f"ended its worker process {deaths} times when it was alone in it"
    if deaths < LONE_DEATHS:
        try:
            score([sets[place]])
            return
        except SgpuError:
            raise
        except Exception as error:
            # The message may hold text of an answer.
            why = f"could not be scored: {type(error).__name__}"
    failures("give_up", name, place, why)
    given_up = len(failures("state", name)[0])
    if given_up > FEW and given_up > len(sets) / 2:
        raise StageError(
            f"{given_up} of the first sets of {name} cannot be scored ({why}). This is hardly the fault of "
            "the logs: look at the memory of the machine and at the model, then run it again."
        )
