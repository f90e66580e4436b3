"""The rows of one bucket: what could be scored, what is refused already, what is known of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.logs.records import MAX_SAMPLES, Reason
from sgpu.logs.rows.fields import DAY, day_of
from sgpu.scoring.sets.dedupe import (
    CommittedRequest,
    CommittedSet,
    Decision,
    Key,
    Place,
    Refused,
    ScoreCandidate,
    content_sha256,
    decide,
    grouped,
    ordered_sha256,
)
from sgpu.scoring.sets.work_rows import RECORD, REJECTED, SINGLE, UNANSWERED, Row
from sgpu.scoring.tables import DATE


@dataclass
class BucketRows:
    """``answers`` are single ones by the set that they belong to.

    Of a set with more answers than a set can have, no texts are held: those that count are read once more.
    """

    read: Callable[[], Iterable[pa.Table]]
    requests: list[ScoreCandidate] = field(default_factory=list)
    answers: dict[str, list[ScoreCandidate]] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)

    @classmethod
    def of(cls, read: Callable[[], Iterable[pa.Table]]) -> BucketRows:
        """``read`` gives the rows, the same each time."""
        found = cls(read)
        for rows in read():
            for row in rows.to_pylist():
                found._add(row)
        return found

    def _add(self, row: Row) -> None:
        kind = row["kind"]
        if kind in (RECORD, UNANSWERED):
            self.requests.append(_candidate(row))
        elif kind == SINGLE:
            self._add_answer(row["set_id"], _candidate(row))
        elif kind == REJECTED:
            self.refused.append(_refused(row))

    def _add_answer(self, set_id: str, answer: ScoreCandidate) -> None:
        answers = self.answers.setdefault(set_id, [])
        answers.append(answer if len(answers) < MAX_SAMPLES else _without_texts(answer))
        if len(answers) == MAX_SAMPLES + 1:
            answers[:] = map(_without_texts, answers)

    def _with_texts(self, made: list[ScoreCandidate]) -> list[ScoreCandidate]:
        """Sets with the texts of their members, where these were not held."""
        crowded = {
            one.request_id
            for one in made
            if len(self.answers[one.request_id]) > MAX_SAMPLES and len(one.places) > 1
        }
        if not crowded:
            return made
        wanted = {place for one in made if one.request_id in crowded for place in one.places}
        texts: dict[Place, list[str]] = {}
        for rows in self.read():
            of_crowded = pc.is_in(rows["set_id"], value_set=pa.array(sorted(crowded), pa.string()))
            for row in rows.filter(of_crowded).select(["split", "line", "texts"]).to_pylist():
                if (place := (row["split"], row["line"])) in wanted:
                    texts[place] = row["texts"]
        return [
            replace(one, texts=tuple(text for place in one.places for text in texts[place]))
            if one.request_id in crowded
            else one
            for one in made
        ]

    def ids(self) -> set[str]:
        """The request ids under which something of this could be committed."""
        return {one.request_id for one in self.requests} | self.answers.keys()

    def days(self) -> set[date]:
        """The days of the rows' own times."""
        rows = [*self.requests, *(one for answers in self.answers.values() for one in answers)]
        return {day_of(number * DAY) for number in {row.timestamp // DAY for row in rows}}

    def single_answers(self) -> set[str]:
        """The request ids of answers that belong to a set."""
        return {one.request_id for answers in self.answers.values() for one in answers}

    def decided(self, committed: pa.Table, day: str, *, rescore: bool) -> Decision:
        """What is new against rows of the score table (`committed.IDS` and the date)."""
        standing, sets = _standing(committed, day, rescore)
        made, rest = grouped(self.answers, sets)
        decision = decide([*self.requests, *self._with_texts(made)], standing)
        return Decision(
            decision.to_score,
            [*self.refused, *rest.refused, *decision.refused],
            rest.duplicates + decision.duplicates,
            rest.already + decision.already,
        )


def _standing(
    committed: pa.Table, day: str, rescore: bool
) -> tuple[dict[Key, CommittedRequest], dict[str, CommittedSet]]:
    standing: dict[Key, CommittedRequest] = {}
    sets: dict[str, CommittedSet] = {}
    for row in committed.to_pylist():
        replaced = rescore and row[DATE] == day
        if row["members"] is not None:
            sets[row["request_id"]] = CommittedSet(frozenset(row["members"]), replaced, row["model"])
        # A set is made anew of all its answers, but no other request may take its id.
        if row["members"] is None or not replaced:
            standing[row["model"], row["request_id"]] = CommittedRequest(
                row["content_sha256"], row[DATE], replaced
            )
    return standing, sets


def _candidate(row: Row) -> ScoreCandidate:
    texts = tuple(row["texts"] or ())
    # Answers that are sampled anew are never the same twice: their question says whether a row was there
    # before.
    told = texts or (row["prompt"],)
    return ScoreCandidate(
        **{name: row[name] for name in ("request_id", "timestamp", "model", "route", "label", "prompt")},
        content=content_sha256(row["model"], told),
        ordered=ordered_sha256(row["model"], told),
        places=((row["split"], row["line"]),),
        texts=texts,
        status="partial" if row["dropped"] else "ok",
        reason=None if row["reason"] is None else Reason(row["reason"]),
    )


def _without_texts(answer: ScoreCandidate) -> ScoreCandidate:
    return replace(answer, texts=())


def _refused(row: Row) -> Refused:
    about = {name: row[name] for name in ("detail", "request_id", "timestamp", "model", "route")}
    return Refused((row["split"], row["line"]), Reason(row["reason"]), **about)
