"""Requests without a second answer, sampled anew where the settings ask for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets.dedupe import Key, content_sha256
from sgpu.scoring.sets.joining import Index
from sgpu.scoring.sets.relations import Relations
from sgpu.scoring.sets.shuffle import with_columns
from sgpu.scoring.sets.work_rows import QUESTION
from sgpu.storage.location import Location

if TYPE_CHECKING:
    from sgpu.scoring.resampling.sampling import Resampler, UnansweredRequest


def journal(plan: DayPlan) -> Location:
    """Where answers are kept until the day is done, also for a run that goes on under another key."""
    return plan.out / "work" / "resampled" / plan.day.isoformat()


def open_resampler(plan: DayPlan) -> Resampler | None:
    """The one that the settings ask for."""
    if plan.settings.resample is None:
        return None
    from sgpu.scoring.resampling.sampling import Resampler  # needs a client that is not always installed

    return Resampler(plan.settings.resample, journal(plan), run=plan.key)


def sample_anew(relations: Relations, plan: DayPlan, index: Index) -> Iterator[tuple[str, Sequence[str]]]:
    """Ask a server for answers, and note what came of each request; new answers by what they are known by.

    Nothing is asked where the settings do not say so; of the chosen ones only the questions are in memory.
    """
    resampler = open_resampler(plan)
    if resampler is None or plan.settings.resample is None:
        return
    from sgpu.scoring.resampling.sampling import UnansweredRequest

    unanswered = (
        rows.filter(pa.array(map(resampler.is_chosen, rows["request_id"].to_pylist()), pa.bool_()))
        for rows in relations.run("unanswered")
    )
    chosen = {
        row["request"]: UnansweredRequest(row["request_id"], row["model"], row["prompt"])
        for rows in with_columns(unanswered, index.locations(plan.work), QUESTION)
        for row in rows.to_pylist()
    }
    requests = sorted(chosen.values(), key=lambda request: (request.request_id, request.model))
    answers = _answers(requests, resampler, plan.settings.resample.requests)
    notes, texts = list[dict[str, object]](), dict[str, Sequence[str]]()
    for item, request in chosen.items():
        outcome = answers.get((request.model, request.request_id), "was not selected for resampling")
        if isinstance(outcome, str):
            notes.append({"item": item, "failure": outcome})
            continue
        key = f"resampled {content_sha256(request.model, outcome)}"
        texts[key] = outcome
        notes.append({"item": item, "set_key": key})
    relations.add("resampled", notes)
    for row in relations.rows("unscored_resampled"):
        yield row["set_key"], texts[row["set_key"]]


def _answers(
    requests: Sequence[UnansweredRequest], resampler: Resampler, most: int
) -> Mapping[Key, Sequence[str] | str]:
    """By request. A resampler tells requests by their id, so that those of two models are asked in turn."""
    answers: dict[Key, Sequence[str] | str] = {}
    left = list(requests)
    while left:
        batch: dict[str, UnansweredRequest] = {}
        for request in left:
            batch.setdefault(request.request_id, request)
        outcomes = resampler(list(batch.values()), most)
        answers |= {
            (batch[request_id].model, request_id): outcome for request_id, outcome in outcomes.items()
        }
        most = max(0, most - len(batch))
        left = [request for request in left if batch[request.request_id] is not request]
    return answers
