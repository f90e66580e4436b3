"""Requests with one answer that are to be asked again: where the new answers come in."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sgpu.errors import UsageError
from sgpu.scoring.buckets import Bucket
from sgpu.scoring.dedupe import Candidate, Decision, refusals
from sgpu.scoring.settings import ResampleSpec

# Found by its name, since it is needed only where somebody asks for it.
RESAMPLER = ("sgpu.scoring.resample", "make_resampler")


class Resampler(Protocol):
    """Samples answers to questions that are logged with one answer or none."""

    def __call__(self, unanswered: Sequence[Candidate], most: int) -> Mapping[str, Sequence[str] | str]:
        """By request id the new answers (two at least), or why there are none.

        It chooses which to ask, and asks no more than ``most``. Requests that it does not name keep the reason
        that they came with.
        """
        ...


def open_resampler(spec: ResampleSpec | None) -> Resampler | None:
    """The one that the settings ask for."""
    if spec is None:
        return None
    module, name = RESAMPLER
    try:
        made: Resampler = getattr(importlib.import_module(module), name)(spec)
    except ModuleNotFoundError as error:
        raise UsageError(f"requests cannot be asked again: {error}") from error
    return made


def share_of_budget(requests: int, bucket: Bucket) -> int:
    """How many of a day's ``requests`` may be asked for this bucket; of all buckets together it is all of them."""
    return requests // bucket.of + (bucket.number < requests % bucket.of)


def asked_again(decision: Decision, resampler: Resampler, most: int) -> Decision:
    """The decision with new answers where there are any; the other requests are refused."""
    unanswered = sorted((one for one in decision.to_score if not one.texts), key=lambda one: one.request_id)
    answers = resampler(unanswered, most) if unanswered else {}
    kept = [one for one in decision.to_score if one.texts]
    refused = list(decision.refused)
    for one in unanswered:
        got = answers.get(one.request_id, "was not chosen to be asked again")
        if isinstance(got, str):
            assert one.reason is not None
            refused += refusals(one, one.reason, got)
        else:
            kept.append(replace(one, texts=tuple(got), status="resampled"))
    return Decision(kept, refused, decision.duplicates, decision.already)
