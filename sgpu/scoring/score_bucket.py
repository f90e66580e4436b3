"""One bucket: from the rows that were dealt to it to files that can be published."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.logs.accounting import Accounting
from sgpu.logs.records import Reason
from sgpu.scoring.isolation import RecordCall, scored_apart
from sgpu.scoring.models.scorer import Scored, Scorer
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.publish import stage
from sgpu.scoring.sets.candidates import BucketRows
from sgpu.scoring.sets.dedupe import Decision, Key, Place, Refused, ScoreCandidate, refusals
from sgpu.scoring.sets.joining import Index
from sgpu.scoring.tables import DATE, IDS, QUARANTINE, SCORES, Base, committed_rows, digest, sets_with
from sgpu.scoring.work_files import Bucket, read_json, read_partitioned, write_json
from sgpu.storage.location import Location
from sgpu.watch import sketch_of

# Answers whose vectors are in memory at once: 100,000 x 384 float32 is 150 MB.
ANSWERS_AT_ONCE = 100_000


def marker(plan: DayPlan, base: Base, bucket: Bucket) -> Any:
    """The file that says that a bucket is done against a base, with counts, sketch and files."""
    return plan.work / "score" / base.name / f"{bucket.name}.json"


class BucketScoring:
    """All buckets of one plan, one after the other."""

    def __init__(
        self,
        plan: DayPlan,
        index: Index,
        scorer: Scorer,
        failures: RecordCall,
        resampler: Resample | None,
    ) -> None:
        self._plan, self._index, self.scorer, self._failures = plan, index, scorer, failures
        self._resampler = resampler

    def done(self, bucket: Bucket, base: Base, earlier: Sequence[Base]) -> dict[str, Any]:
        """The content of the bucket's marker. What is right against an earlier base is not done again."""
        done = marker(self._plan, base, bucket)
        if (found := read_json(done)) is not None:
            return found
        started = time.monotonic()
        rows = self._rows(bucket)
        own, others = self._committed(bucket, base, rows)
        state = digest(own, others)
        known = (read_json(marker(self._plan, one, bucket)) for one in earlier)
        content = next((one for one in known if one is not None and one["committed"] == state), None)
        if content is None:
            content = self._made(bucket, base, rows, own, others)
            content |= {"committed": state, "seconds": time.monotonic() - started}
        write_json(done, content)
        return content

    def _rows(self, bucket: Bucket) -> BucketRows:
        files = self._index.files
        folder = self._plan.work / "ingest"
        return BucketRows.of(lambda: (read_partitioned(folder / file, bucket) for file in files))

    def _committed(self, bucket: Bucket, base: Base, rows: BucketRows) -> tuple[pa.Table, pa.Table]:
        """The day's rows of the bucket; of other rows those that have something to do with ``rows``."""
        root = self._plan.out / SCORES.name
        # Of days far away only those are looked at that a row of this bucket names by its own time.
        base = base.on(self._plan.settings.window(self._plan.day, *rows.days()))
        own, others = committed_rows(root, base, bucket, self._plan.day)
        wanted = pa.array(sorted(rows.ids()), pa.string())
        sets = sets_with(root, base, rows.single_answers())
        known = pa.concat_arrays([wanted, own["request_id"].combine_chunks()])
        return own, pa.concat_tables(
            [
                others.filter(pc.is_in(others["request_id"], value_set=wanted)),
                sets.filter(pc.invert(pc.is_in(sets["request_id"], value_set=known))),
            ]
        )

    def _made(
        self, bucket: Bucket, base: Base, rows: BucketRows, own: pa.Table, others: pa.Table
    ) -> dict[str, Any]:
        plan, day, rescore = self._plan, self._plan.day.isoformat(), self._plan.settings.rescore
        committed = pa.concat_tables([own.select([*IDS, DATE]), others])
        decision = rows.decided(committed, day, rescore=rescore)
        if self._resampler is not None and plan.settings.resample is not None:
            most = share_of_budget(plan.settings.resample.requests, bucket)
            decision = asked_again(decision, self._resampler, most)
        started = time.monotonic()
        scores, refused = self._scored(bucket, decision)
        encoding = time.monotonic() - started
        vanished = _keys(own) - _keys(scores) if rescore else ()
        before = own.slice(0, 0) if rescore else own
        quarantine = quarantine_table(refused, plan, lambda place: self._index.file_and_line(plan, place))
        staged = {
            table.name: stage(plan, base, bucket, table, made)
            for table, made in ((SCORES, scores), (QUARANTINE, quarantine))
        }
        return {
            "accounting": _accounting(decision, scores, refused, before).to_json(),
            "sketch": sketch_of(pa.concat_tables([before.select(SCORES.schema.names), scores])).to_json(),
            "vanished": len(vanished),
            "files": {name: file and asdict(file) for name, file in staged.items()},
            "scoring_seconds": encoding,
        }

    def _scored(self, bucket: Bucket, decision: Decision) -> tuple[pa.Table, list[Refused]]:
        """The rows that have a score, and all that is refused."""
        # One order on every machine, so that the files are the same.
        wanted = sorted(decision.to_score, key=lambda one: (one.request_id, one.model))
        refused = list(decision.refused)
        for one in [one for one in wanted if not one.texts]:
            refused += refusals(one, one.reason or Reason.TOO_FEW, "was not sampled anew")
        wanted = [one for one in wanted if one.texts]
        name = f"{self._plan.key}/{bucket.name}"
        places, results, failed = scored_apart(
            name, [one.texts for one in wanted], self._score, self._failures
        )
        for place, why in sorted(failed.items()):
            refused += refusals(wanted[place], Reason.SCORING_FAILED, why)
        encoder = (self.scorer.encoder_name, self.scorer.encoder_sha256)
        parts = [part for result in results for part in result]
        scores, problems = score_table([wanted[place] for place in places], parts, self._plan, encoder)
        return scores, refused + problems

    def _score(self, sets: Sequence[Sequence[str]]) -> list[Scored]:
        return [self.scorer.score(part) for part in _slices(sets)]


def _slices(sets: Sequence[Sequence[str]]) -> Iterator[Sequence[Sequence[str]]]:
    """Neighbouring sets with no more than `ANSWERS_AT_ONCE` answers; a larger one alone."""
    start, answers = 0, 0
    for place, texts in enumerate(sets):
        if place > start and answers + len(texts) > ANSWERS_AT_ONCE:
            yield sets[start:place]
            start, answers = place, 0
        answers += len(texts)
    if start < len(sets):
        yield sets[start:]


def _accounting(
    decision: Decision, scores: pa.Table, refused: Sequence[Refused], before: pa.Table
) -> Accounting:
    """Of the rows that were dealt to the bucket; faults of files are no rows."""
    rows = [one for one in refused if one.place[1] is not None]
    members = scores["members"].to_pylist()
    return Accounting(
        rows_in=0,
        scored_rows=sum(1 if one is None else len(one) for one in members),
        quarantined=len(rows),
        duplicates=decision.duplicates,
        already=decision.already,
        requests_scored=scores.num_rows,
        requests_before=before.num_rows,
        by_reason=dict(sorted(Counter(str(one.reason) for one in rows).items())),
    )


def _keys(rows: pa.Table) -> set[Key]:
    return set(zip(rows["model"].to_pylist(), rows["request_id"].to_pylist(), strict=True))


# Samples answers to questions that are logged with one answer or none: by request id the new answers (two at
# least), or why there are none. It chooses which to ask, and asks no more than the number that it is given.
# Requests that it does not name keep the reason that they came with.
Resample = Callable[[Sequence[ScoreCandidate], int], Mapping[str, Sequence[str] | str]]


def journal(plan: DayPlan) -> Location:
    """Where answers are kept until the day is done, also for a run that goes on under another key."""
    return plan.out / "work" / "resampled" / plan.day.isoformat()


def open_resampler(plan: DayPlan, workers: int) -> Resample | None:
    """The one that the settings ask for; ``workers`` processes share its rate."""
    if plan.settings.resample is None:
        return None
    from sgpu.scoring.resampling.sampling import Resampler  # needs a client that is not always installed

    return Resampler(plan.settings.resample, journal(plan), run=plan.key, workers=workers)


def share_of_budget(requests: int, bucket: Bucket) -> int:
    """How many of a run's ``requests`` may be asked for this bucket; over all buckets they add up."""
    return requests // bucket.of + (bucket.number < requests % bucket.of)


def asked_again(decision: Decision, resampler: Resample, most: int) -> Decision:
    """The decision with new answers where there are any; the other requests are refused."""
    without = (one for one in decision.to_score if not one.texts)
    unanswered = sorted(without, key=lambda one: (one.request_id, one.model))
    answers = _answers(unanswered, resampler, most)
    kept = [one for one in decision.to_score if one.texts]
    refused = list(decision.refused)
    for one in unanswered:
        got = answers.get(one.key, "was not selected for resampling")
        if isinstance(got, str):
            assert one.reason is not None
            refused += refusals(one, one.reason, got)
        else:
            kept.append(replace(one, texts=tuple(got), status="resampled"))
    return Decision(kept, refused, decision.duplicates, decision.already)


def _answers(
    unanswered: Sequence[ScoreCandidate], resampler: Resample, most: int
) -> dict[Key, Sequence[str] | str]:
    """By request. A resampler tells requests by their id, so that those of two models are asked in turn."""
    answers: dict[Key, Sequence[str] | str] = {}
    left = list(unanswered)
    while left:
        asked: dict[str, ScoreCandidate] = {}
        for one in left:
            asked.setdefault(one.request_id, one)
        named = resampler(list(asked.values()), most)
        answers |= {asked[request_id].key: got for request_id, got in named.items()}
        most = max(0, most - len(asked))
        left = [one for one in left if asked[one.request_id] is not one]
    return answers


def score_table(
    candidates: Sequence[ScoreCandidate], scored: Sequence[Scored], plan: DayPlan, encoder: tuple[str, str]
) -> tuple[pa.Table, list[Refused]]:
    """The rows of what has a score, by request id, and those that no model could answer for.

    ``scored`` are the parts of a result for ``candidates`` in their order, ``encoder`` is name and sha256.
    """
    rows: list[dict[str, Any]] = []
    refused: list[Refused] = []
    left = iter(candidates)
    for part in scored:
        for place, problem in enumerate(part.problems):
            one = next(left)
            if problem is not None:
                refused += refusals(one, problem.reason, problem.detail)
            else:
                rows.append(_row(one, part, place))
    rows.sort(key=lambda row: (row["request_id"], row["model"] or ""))
    champion, challenger = plan.models.champion, plan.models.challenger
    same = {
        "scorer": champion.label,
        "scorer_sha256": champion.sha256,
        "encoder": encoder[0],
        "encoder_sha256": encoder[1],
        "shadow_scorer": None if challenger is None else challenger.label,
        "run_key": plan.key,
        "code_version": plan.code_version,
    }
    return pa.Table.from_pylist([row | same for row in rows], schema=SCORES.schema), refused


def quarantine_table(
    refused: Sequence[Refused], plan: DayPlan, file_and_line: Callable[[Place], tuple[str, int | None]]
) -> pa.Table:
    """The refused rows by file and line."""
    same = {"run_key": plan.key, "code_version": plan.code_version}
    rows: list[dict[str, Any]] = []
    for row in refused:
        file, line = file_and_line(row.place)
        rows.append({**asdict(row), "reason": str(row.reason), "file": file, "line": line, **same})
    rows.sort(key=lambda row: (row["file"], row["line"] or 0, row["request_id"] or "", row["reason"]))
    return pa.Table.from_pylist(rows, schema=QUARANTINE.schema)


def _row(candidate: ScoreCandidate, scored: Scored, place: int) -> dict[str, Any]:
    taken = ("request_id", "timestamp", "model", "route", "status", "label")
    judged = ("unsafe", "accepted", "shadow_unsafe")
    return {
        **{name: getattr(candidate, name) for name in taken},
        **{name: getattr(scored, name)[place] for name in judged},
        "probability": float(scored.probability[place]),
        "std": float(scored.std[place]),
        "shadow_probability": _number(scored.shadow_probability[place]),
        "shadow_std": _number(scored.shadow_std[place]),
        "n_used": int(scored.n_used[place]),
        "n_distinct": int(scored.n_distinct[place]),
        "spectrum": scored.spectra[place].tolist(),
        "top_eigenvalue_share": float(scored.top_share[place]),
        "head": scored.heads[place],
        "content_sha256": candidate.content,
        "members": None if candidate.members is None else list(candidate.members),
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
