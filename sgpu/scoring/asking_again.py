"""Requests with one answer that are to be asked again: where the new answers come in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sgpu.scoring.buckets import Bucket
from sgpu.scoring.plan import Plan
from sgpu.scoring.sets.dedupe import Candidate, Decision, Key, refusals
from sgpu.storage.location import Location


class Resampler(Protocol):
    """Samples answers to questions that are logged with one answer or none."""

    def __call__(self, unanswered: Sequence[Candidate], most: int) -> Mapping[str, Sequence[str] | str]:
        """By request id the new answers (two at least), or why there are none.

        It chooses which to ask, and asks no more than ``most``. Requests that it does not name keep the
        reason that they came with.
        """
        ...


def journal(plan: Plan) -> Location:
    """Where answers are kept until the day is done, also for a run that goes on under another key."""
    return plan.out / "work" / "resampled" / plan.day.isoformat()


def open_resampler(plan: Plan, workers: int) -> Resampler | None:
    """The one that the settings ask for; ``workers`` processes share its rate."""
    if plan.settings.resample is None:
        return None
    from sgpu.scoring.resampling.sampling import make_resampler  # needs a client that is not always installed

    return make_resampler(plan.settings.resample, journal(plan), run=plan.key, workers=workers)


def share_of_budget(requests: int, bucket: Bucket) -> int:
    """How many of a run's ``requests`` may be asked for this bucket; over all buckets they add up."""
    return requests // bucket.of + (bucket.number < requests % bucket.of)


def asked_again(decision: Decision, resampler: Resampler, most: int) -> Decision:
    """The decision with new answers where there are any; the other requests are refused."""
    without = (one for one in decision.to_score if not one.texts)
    unanswered = sorted(without, key=lambda one: (one.request_id, one.model))
    answers = _answers(unanswered, resampler, most)
    kept = [one for one in decision.to_score if one.texts]
    refused = list(decision.refused)
    for one in unanswered:
        got = answers.get(one.key, "was not chosen to be asked again")
        if isinstance(got, str):
            assert one.reason is not None
            refused += refusals(one, one.reason, got)
        else:
            kept.append(replace(one, texts=tuple(got), status="resampled"))
    return Decision(kept, refused, decision.duplicates, decision.already)


def _answers(
    unanswered: Sequence[Candidate], resampler: Resampler, most: int
) -> dict[Key, Sequence[str] | str]:
    """By request. A resampler tells requests by their id, so that those of two models are asked in turn."""
    answers: dict[Key, Sequence[str] | str] = {}
    left = list(unanswered)
    while left:
        asked: dict[str, Candidate] = {}
        for one in left:
            asked.setdefault(one.request_id, one)
        named = resampler(list(asked.values()), most)
        answers |= {asked[request_id].key: got for request_id, got in named.items()}
        most = max(0, most - len(asked))
        left = [one for one in left if asked[one.request_id] is not one]
    return answers
