"""One day of a plan from the logs to the commit: each step leaves files that say it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from sgpu.errors import StageError
from sgpu.logs.accounting import Accounting
from sgpu.runtime.progress import Progress
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.publish import DayTables, StagedFile
from sgpu.scoring.sets.joining import Index, index_of, join_parts, joined_files
from sgpu.scoring.tables import QUARANTINE, SCORES, Base
from sgpu.scoring.work_files import read_json, write_json
from sgpu.scoring.workers import Calls, WorkerPool
from sgpu.storage.location import Location
from sgpu.watch import Sketch, folded, merge
from sgpu.watch.history import read_past_days
from sgpu.watch.sketch import MOST_GROUPS

# How often others may commit between our look at the table and our commit.
EXAMINATIONS = 20


@dataclass(frozen=True)
class Result:
    """What all buckets of a plan come to, against one base (by its name)."""

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
        write_json(work / "result" / f"{self.base}.json", content)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Result:
        files = {
            table.name: tuple(StagedFile(**file) for file in content[table.name])
            for table in (SCORES, QUARANTINE)
        }
        accounting, sketch = Accounting.from_json(content["accounting"]), Sketch.from_json(content["sketch"])
        return cls(**{**content, **files, "accounting": accounting, "sketch": sketch})


class DayJob:
    """``still_ours`` raises if the lock was lost."""

    def __init__(
        self,
        plan: DayPlan,
        pool: WorkerPool,
        progress: Progress,
        still_ours: Callable[[], None] = lambda: None,
    ) -> None:
        self._plan, self._pool, self._progress, self._still_ours = plan, pool, progress, still_ours
        self._tables = DayTables(plan.out, plan.day)
        self._work = str(plan.work)
        self._earlier: list[Base] = []
        self._window: Sequence[date] = ()

    def run(self) -> Result | None:
        """Bring the day to where the plan wants it, from wherever an earlier run was cut off.

        None where the logs hold rows of other days alone: then nothing is written. Raises StageError if rows
        are lost or doubled, or a rescored day would lose requests.
        """
        self._plan.save()
        for _ in range(EXAMINATIONS):
            if (known := self._committed()) is None:
                index = self._index()
                # What has no time of its own is told with the days that the others are of.
                if not index.dated and index.accounting["other_day"]:
                    return None
                result = self._scored(index)
                self._still_ours()
                generation = self._tables.commit_scores(
                    self._plan, self._earlier[-1], result.scores, self._window
                )
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
                result, generation = known
            self._tables.commit_quarantine(self._plan, generation, result.quarantine)
            return result
        raise StageError(
            f"{self._plan.day}: other runs committed {EXAMINATIONS} times meanwhile; run it again"
        )

    def _committed(self) -> tuple[Result, int] | None:
        """The result of this plan that is in the table, if one is and its files of work are there."""
        for file in (self._plan.work / "result").files(".json"):
            result = Result.of(read_json(file))
            generation = self._tables.written_by(self._plan.key, result.base)
            if generation is not None:
                return result, generation
        return None

    def _index(self) -> Index:
        """Reads what is not read yet."""
        plan = self._plan
        if (found := Index.load(plan.work)) is not None:
            return found
        units = self._all("reading", "ingest", [(self._work, unit) for unit in range(len(plan.units))])
        files = tuple(joined_files(units))
        joins = self._all("joining", "join", [(self._work, part, files) for part in join_parts(units)])
        index = index_of(plan, units, joins)
        index.save(plan.work)
        return index

    def _scored(self, index: Index) -> Result:
        """Scores what is not scored yet against the table as it is now."""
        plan = self._plan
        self._window = plan.settings.window(plan.day, *map(date.fromisoformat, index.own_days))
        base = self._tables.base(self._window)
        earlier = tuple(self._bases(base))
        calls = [(self._work, bucket, base, earlier) for bucket in index.buckets]
        accounting, sketch, vanished, seconds = Accounting.from_json(index.accounting), Sketch(), 0, 0.0
        files: dict[str, list[StagedFile]] = {SCORES.name: [], QUARANTINE.name: []}
        with self._progress.stage(f"{plan.day} scoring", index.rows) as bar:
            for _, content in self._pool.each("score", calls):
                accounting = accounting + Accounting.from_json(content["accounting"])
                sketch = merge([sketch, Sketch.from_json(content["sketch"])])
                if len(sketch.groups) > MOST_GROUPS:
                    sketch = folded(sketch, read_past_days(plan.out, plan.day).sketches)
                vanished += content["vanished"]
                seconds += content["scoring_seconds"]
                for name, file in content["files"].items():
                    files[name] += [StagedFile(**file)] if file else []
                done = accounting.scored_rows + accounting.quarantined + accounting.duplicates
                bar.show({"rows": done + accounting.already})
        accounting.check()
        if vanished:
            raise StageError(
                f"{plan.day}: {vanished} requests are in the table and cannot be scored again: they are not "
                "in these logs, or not as they were. Nothing was changed. Restore the logs and run again."
            )
        ordered = {name: tuple(sorted(staged, key=lambda file: file.path)) for name, staged in files.items()}
        result = Result(base.name, accounting, sketch, **ordered, scoring_seconds=seconds)
        result.save(plan.work)
        return result

    def _bases(self, base: Base) -> Sequence[Base]:
        """Other bases that this plan was scored against, by this or an earlier run; ``base`` is noted."""
        folder = self._plan.work / "bases"
        known = [Base.of(read_json(file)) for file in folder.files(".json")]
        write_json(folder / f"{base.name}.json", base.files)
        self._earlier.append(base)
        return [one for one in known if one.name != base.name]

    def _all(self, title: str, method: str, calls: Calls) -> list[Any]:
        """All results in the order of the calls."""
        results: list[Any] = [None] * len(calls)
        with self._progress.stage(f"{self._plan.day} {title}", len(calls)) as bar:
            for count, (place, result) in enumerate(self._pool.each(method, calls), start=1):
                results[place] = result
                bar.show({"rows": count})
        return results
