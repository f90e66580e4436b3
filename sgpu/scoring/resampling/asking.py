"""Requests without a second answer, sampled anew where the settings ask for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets.dedupe import content_sha256
from sgpu.scoring.sets.joining import Index
from sgpu.scoring.sets.relations import Relations
from sgpu.scoring.sets.shuffle import with_columns
from sgpu.scoring.sets.work_rows import QUESTION
from sgpu.storage.location import Location

if TYPE_CHECKING:
    from sgpu.scoring.resampling.sampling import Resampler


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
    if resampler is None:
        return
    from sgpu.scoring.resampling.sampling import Failed, UnansweredRequest

    unanswered = (
        rows.filter(pa.array(map(resampler.is_chosen, rows["request_id"].to_pylist()), pa.bool_()))
        for rows in relations.run("unanswered")
    )
    chosen = {
        row["request"]: UnansweredRequest(row["request_id"], row["model"], row["prompt"])
        for rows in with_columns(unanswered, index.locations(plan.work), QUESTION)
        for row in rows.to_pylist()
    }
    notes, texts = list[dict[str, object]](), dict[str, Sequence[str]]()
    outcomes = resampler.answers(list(chosen.values()))
    for (item, request), outcome in zip(chosen.items(), outcomes, strict=True):
        if isinstance(outcome, Failed):
            notes.append({"item": item, "failure": f"{outcome.cause}: {outcome.detail}"})
            continue
        answers = [sample.text for sample in outcome.samples]
        key = f"resampled {content_sha256(request.model, answers)}"
        texts[key] = answers
        notes.append({"item": item, "set_key": key})
    relations.add("resampled", notes)
    for row in relations.rows("unscored_resampled"):
        yield row["set_key"], texts[row["set_key"]]
