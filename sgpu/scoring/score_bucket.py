"""One bucket: from the rows that were dealt to it to files that can be published."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.fitted.profile import TrainingProfile
from sgpu.logs.accounting import Accounting
from sgpu.logs.records import Reason
from sgpu.scoring.asking_again import Resampler, asked_again, share_of_budget
from sgpu.scoring.buckets import Bucket
from sgpu.scoring.isolation import Book, scored_apart
from sgpu.scoring.models.scorer import Scored
from sgpu.scoring.plan import Plan
from sgpu.scoring.score_rows import quarantine_table, score_table
from sgpu.scoring.sets.candidates import BucketRows
from sgpu.scoring.sets.committed import IDS, Base, committed_rows, digest, sets_with
from sgpu.scoring.sets.dedupe import Decision, Key, Refused, refusals
from sgpu.scoring.sets.index import Index
from sgpu.scoring.staging import stage, table_folder
from sgpu.scoring.tables import DATE, QUARANTINE, SCORES
from sgpu.scoring.work_files import read_dealt, read_json, write_json
from sgpu.watch import sketch_of

# Answers whose vectors are in memory at once: 100,000 x 384 float32 is 150 MB.
ANSWERS_AT_ONCE = 100_000


class SetScorer(Protocol):
    """What is needed of `sgpu.scoring.models.scorer.Scorer`."""

    @property
    def encoder_name(self) -> str: ...
    @property
    def encoder_sha256(self) -> str: ...
    @property
    def profile(self) -> TrainingProfile | None: ...
    def score(self, sets: Sequence[Sequence[str]]) -> Scored: ...


def marker(plan: Plan, base: Base, bucket: Bucket) -> Any:
    """The file that says that a bucket is done against a base, with counts, sketch and files."""
    return plan.work / "score" / base.name / f"{bucket.name}.json"


class BucketScoring:
    """All buckets of one plan, one after the other."""

    def __init__(
        self, plan: Plan, index: Index, scorer: SetScorer, book: Book, resampler: Resampler | None
    ) -> None:
        self._plan, self._index, self.scorer, self._book = plan, index, scorer, book
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
        return BucketRows.of(lambda: (read_dealt(folder / file, bucket) for file in files))

    def _committed(self, bucket: Bucket, base: Base, rows: BucketRows) -> tuple[pa.Table, pa.Table]:
        """The day's rows of the bucket; of other rows those that have something to do with ``rows``."""
        root = table_folder(self._plan.out, SCORES)
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
            "sketch": sketch_of(_of_the_day(before, scores)).to_json(),
            "vanished": len(vanished),
            "files": {name: one and one.to_json() for name, one in staged.items()},
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
        places, results, failed = scored_apart(name, [one.texts for one in wanted], self._score, self._book)
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


def _of_the_day(before: pa.Table, scores: pa.Table) -> pa.Table:
    """All that the table will hold of the day."""
    return pa.concat_tables([before.select(SCORES.schema.names), scores])


def _keys(rows: pa.Table) -> set[Key]:
    return set(zip(rows["model"].to_pylist(), rows["request_id"].to_pylist(), strict=True))
