"""One day of a plan from the logs to the commit: each step leaves files that say it is done."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from functools import cached_property
from typing import Any

from sgpu.errors import StageError
from sgpu.logs.accounting import Accounting
from sgpu.runtime.progress import Progress
from sgpu.scoring.day_rows import DayRows
from sgpu.scoring.models.pinning import ScorerSource
from sgpu.scoring.parts import StepRun
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.publish import DayTables, StagedFile
from sgpu.scoring.resampling.asking import sample_anew
from sgpu.scoring.sets.decide import decide_all, load_relations
from sgpu.scoring.sets.ingest import Reader
from sgpu.scoring.sets.joining import Index, Joiner, deal, index_of
from sgpu.scoring.sets.relations import Relations
from sgpu.scoring.sets.work_rows import items_of
from sgpu.scoring.slices import OUTCOME, SliceScorer, scored_files, scored_folder, unscored, write_slices
from sgpu.scoring.tables import QUARANTINE, SCORES, Base
from sgpu.storage.location import Location
from sgpu.watch.sketch import Sketch

# How often others may commit between our look at the table and our commit.
EXAMINATIONS = 20
# Up to these this process does the work itself: the start of Ray takes longer.
SMALL_BYTES, SMALL_SETS = 64 * 2**20, 4096


@dataclass(frozen=True)
class JobResult:
    """What a plan comes to, against one base (by its name)."""

    base: str
    accounting: Accounting
    sketch: Sketch
    scores: tuple[StagedFile, ...]
    quarantine: tuple[StagedFile, ...]
    scoring_seconds: float = 0.0  # of all workers together

    def save(self, work: Location) -> None:
        content = {
            "base": self.base,
            "accounting": self.accounting.to_json(),
            "sketch": self.sketch.to_json(),
            SCORES.name: [asdict(file) for file in self.scores],
            QUARANTINE.name: [asdict(file) for file in self.quarantine],
            "scoring_seconds": self.scoring_seconds,
        }
        (work / "result" / f"{self.base}.json").write_json(content)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> JobResult:
        files = {
            table.name: tuple(StagedFile(**file) for file in content[table.name])
            for table in (SCORES, QUARANTINE)
        }
        accounting, sketch = Accounting.from_json(content["accounting"]), Sketch.from_json(content["sketch"])
        return cls(**{**content, **files, "accounting": accounting, "sketch": sketch})


class DayJob:
    """The work on one day, from its logs to both tables."""

    def __init__(self, plan: DayPlan, source: ScorerSource, progress: Progress) -> None:
        self._plan, self._source, self._progress = plan, source, progress
        self._tables = DayTables(plan.out, plan.day)

    def run(self) -> JobResult | None:
        """Bring the day to where the plan wants it, from wherever an earlier run was cut off.

        None where the logs hold rows of other days alone: then nothing is written. Raises StageError if rows
        are lost or doubled, or a rescored day would lose requests.
        """
        for _ in range(EXAMINATIONS):
            if (committed := self._committed()) is None:
                index = self._index
                # What has no time of its own is told with the days that the others are of.
                if not index.dated and index.accounting["other_day"]:
                    return None
                window = self._plan.settings.window(self._plan.day, *map(date.fromisoformat, index.own_days))
                base = self._tables.base(window)
                result = self._made(index, base)
                generation = self._tables.commit_scores(self._plan, base, result.scores, window)
                if generation is None:
                    # Where they had the same plan and have cleaned up, there is nothing to look at any more.
                    if self._tables.written_by(self._plan.key) is not None and self._committed() is None:
                        raise StageError(
                            f"{self._plan.day}: another run did the same meanwhile; "
                            "run it again to see its result"
                        )
                    self._progress.say(
                        f"{self._plan.day}: another run committed meanwhile; checking for new rows"
                    )
                    continue
            else:
                result, generation = committed
            self._tables.commit_quarantine(self._plan, generation, result.quarantine)
            return result
        raise StageError(
            f"{self._plan.day}: other runs committed {EXAMINATIONS} times meanwhile; run it again"
        )

    def _committed(self) -> tuple[JobResult, int] | None:
        """The result of this plan that is in the table, if one is and its files of work are there."""
        for file in (self._plan.work / "result").files(".json"):
            result = JobResult.of(file.read_json())
            generation = self._tables.written_by(self._plan.key, result.base)
            if generation is not None:
                return result, generation
        return None

    @cached_property
    def _index(self) -> Index:
        """Reads what is not read yet."""
        plan = self._plan
        small = plan.snapshot.n_bytes <= SMALL_BYTES
        units = StepRun(plan, self._progress, Reader(plan)).done(_numbers(len(plan.units)), small=small)
        joins = StepRun(plan, self._progress, Joiner(plan)).done(_numbers(deal(plan, units)), small=small)
        return index_of(plan, units, joins)

    def _made(self, index: Index, base: Base) -> JobResult:
        """The files of the day against the table as it is now; what is scored is not scored again."""
        plan = self._plan
        with Relations(plan.scratch) as relations:
            load_relations(relations, plan, index, base)
            decide_all(relations, plan, index)
            scored = scored_files(plan.work)
            relations.add("scored", items_of(scored, OUTCOME))
            resampled = sample_anew(relations, plan, index)
            sets = itertools.chain(resampled, unscored(relations, plan, index))
            slices = write_slices(plan.work, sets, plan.settings.bucket_rows)
            scoring = StepRun(plan, self._progress, SliceScorer(plan, self._source))
            small = sum(slices.values()) <= SMALL_SETS
            contents = scoring.done(list(slices), small=small)
            new = [scored_folder(plan.work) / content["file"] for content in contents]
            relations.add("scored", items_of(new, OUTCOME, first=len(scored)))
            day = DayRows(plan, base, relations, [*scored, *new])
            scores, sketch = day.scores()
            quarantine, by_reason = day.quarantine()
            accounting = Accounting.from_json(index.accounting) + day.accounting(by_reason)
            vanished = day.vanished()
        accounting.check()
        if vanished:
            raise StageError(
                f"{plan.day}: {vanished} requests are in the table and cannot be scored again: they are not "
                "in these logs, or not as they were. Nothing was changed. Restore the logs and run again."
            )
        seconds = sum(content["seconds"] for content in contents)
        result = JobResult(base.name, accounting, sketch, scores, quarantine, seconds)
        result.save(plan.work)
        return result


def _numbers(count: int) -> list[str]:
    return [f"{number:05d}" for number in range(count)]
