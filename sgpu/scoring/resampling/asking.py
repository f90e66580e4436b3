"""Requests without a second answer, for which the settings ask for new ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets.dedupe import content_sha256
from sgpu.scoring.sets.joining import Index
from sgpu.scoring.sets.relations import Relations
from sgpu.scoring.sets.shuffle import with_columns
from sgpu.scoring.sets.work_rows import UNASKED
from sgpu.storage.location import Location


def journal(plan: DayPlan) -> Location:
    """Return where answers are kept until the day is published, also for a run under another key."""
    return plan.out / "work" / "resampled" / plan.day.isoformat()


def sample_anew(
    relations: Relations, plan: DayPlan, index: Index
) -> Iterator[tuple[str, Sequence[str], str | None]]:
    """Ask the server for answers and record every outcome.

    Yields (set key, answers, question) of sets that have no score yet; the question is None where no model
    reads it. Nothing is asked unless the settings say so. Of the chosen requests only the questions are in
    memory.
    """
    if plan.settings.resample is None:
        return
    # Needs a client that is not always installed.
    from sgpu.scoring.resampling.sampling import NoNewAnswers, Resampler, UnansweredRequest

    resampler = Resampler(plan.settings.resample, journal(plan), run=plan.key)
    unanswered = (
        rows.filter(pa.array(map(resampler.is_chosen, rows["request_id"].to_pylist()), pa.bool_()))
        for rows in relations.run("unanswered")
    )
    chosen = [
        row
        for rows in with_columns(unanswered, index.locations(plan.work), UNASKED)
        for row in rows.to_pylist()
    ]
    requests = [UnansweredRequest(row["request_id"], row["model"], row["prompt"]) for row in chosen]
    notes, sets = list[dict[str, object]](), dict[str, tuple[Sequence[str], str | None]]()
    with closing(resampler):
        outcomes = resampler.answers(requests)
    for row, outcome in zip(chosen, outcomes, strict=True):
        if isinstance(outcome, NoNewAnswers):
            notes.append({"item": row["request"], "failure": str(outcome)})
            continue
        known_by = ["resampled", content_sha256(row["model"], outcome), row["asked"]]
        key = " ".join(filter(None, known_by))
        sets[key] = outcome, row["question"]
        notes.append({"item": row["request"], "set_key": key})
    relations.add("resampled", notes)
    for row in relations.rows("unscored_resampled"):
        yield row["set_key"], *sets[row["set_key"]]
