"""A day's work as stages of the runner: a row names a part of it, and says afterwards what the part left.

Parts read files and leave files, so that a row is small whatever the logs hold. A part that fails, or ends
its worker, is taken to pieces (files, keys, sets), a row each: what fails by itself is given up, the rest is
done.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from sgpu.errors import StageError
from sgpu.hashing import canonical_json
from sgpu.provenance import available_cores
from sgpu.runtime.progress import Progress
from sgpu.runtime.runner import run_blocks
from sgpu.runtime.session import named_cluster, ray_session
from sgpu.runtime.stage import Resources, Stage, imported, most_frequent
from sgpu.scoring.plan import DayPlan
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import parquet_bytes, read_rows
from sgpu.storage.store import Partition, Published
from sgpu.storage.tables import QUESTION_ID, STATUS, Table

# More than these many pieces that fail, and more than half of all, are not the fault of the pieces.
MOST_REFUSED_ALWAYS = 20
PIECES_AT_ONCE = 256
FOLDER = "parts"
PARTS = pa.schema([QUESTION_ID, pa.field("part", pa.string()), pa.field("piece", pa.string())])
DONE = Table.of("parts", ("date",), QUESTION_ID, *STATUS, pa.field("content", pa.string()))
Content = dict[str, Any]


class Step(Protocol):
    """One kind of work on the parts of a day; built from the plan, and what `StepRun` is given besides.

    ``ends_stage`` are the errors that are no fault of a part. ``on_gpu``: whether a GPU helps.
    """

    name: ClassVar[str]
    ends_stage: ClassVar[tuple[type[Exception], ...]]
    on_gpu: ClassVar[bool]

    def __init__(self, plan: DayPlan, **arguments: Any) -> None: ...

    def work(self, part: str, pieces: Sequence[str] | None) -> Content:
        """Do a part, or some of its pieces; may be repeated. ``sets``, if it is there, is counted."""
        ...

    def pieces(self, part: str) -> Sequence[str]:
        """Their names."""
        ...

    def give_up(self, part: str, pieces: Mapping[str, str]) -> Content:
        """As `work`, for pieces that fail, with the reasons."""
        ...


class StepWorker:
    """The worker of a stage; ``step`` ("module:Class") does the work."""

    def __init__(self, step: str, work: str, arguments: Mapping[str, Any]) -> None:
        self._step: Step = imported(step)(DayPlan.load(Location.of(work)), **arguments)
        self.ends_stage = self._step.ends_stage

    def __call__(self, batch: pa.Table) -> pa.Table:
        done: list[dict[str, Any]] = []
        for part, rows in groupby(batch.to_pylist(), itemgetter("part")):
            ids, pieces = zip(*((row["question_id"], row["piece"]) for row in rows), strict=True)
            content = self._step.work(part, None if pieces == (None,) else pieces)
            done += [{"question_id": row_id, "status": "ok"} for row_id in ids]
            done[-1]["content"] = canonical_json(content)
        return pa.Table.from_pylist(done, schema=DONE.schema)

    def counts(self, output: pa.Table) -> dict[str, float]:
        contents = [json.loads(content) for content in output["content"].drop_null().to_pylist()]
        return {"sets": sum(content.get("sets", 0) for content in contents)} if self._step.on_gpu else {}


@dataclass(frozen=True)
class StepRun:
    """One step of a day on its way; what an earlier run of the plan has done is not done again."""

    plan: DayPlan
    progress: Progress
    step: type[Step]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def done(self, parts: Sequence[str], *, small: bool) -> list[Content]:
        """What each part left, in their order; several contents of one that was taken to pieces.

        ``small`` work is done in this process, unless the settings ask for others. Raises StageError where
        so much fails that it is hardly the fault of the logs, and what ends the stage of the step.
        """
        done, _ = self._rows([(part, None) for part in parts], self.step.name, small)
        contents = {part: [done[part]] for part in parts if part in done}
        if broken := [part for part in parts if part not in contents]:
            contents |= self._in_pieces(broken)
        return [content for part in parts for content in contents[part]]

    def _in_pieces(self, parts: Sequence[str]) -> dict[str, list[Content]]:
        step = self.step(self.plan, **self.arguments)
        rows = [(part, piece) for part in parts for piece in step.pieces(part)]
        # In a folder of this run: another one could cut the same into other blocks.
        done, failed = self._rows(rows, f"{self.step.name}-{uuid.uuid4().hex}", small=False)
        lost = len(rows) - len(done) - len(failed)
        if lost or len(failed) > max(MOST_REFUSED_ALWAYS, len(rows) / 2):
            (self.plan.work / FOLDER / self.step.name).delete()
            raise StageError(
                f"{self.step.name} of {self.plan.day}: of {len(rows)} pieces {len(failed)} fail "
                f"by themselves and {lost} were not tried, which is hardly the fault of the logs: "
                f"{most_frequent(failed.values())}. Mend the reason and run the same command again."
            )
        contents: dict[str, list[Content]] = {}
        for part, of_part in groupby(rows, itemgetter(0)):
            names = {_id(*row): row[1] for row in of_part}
            contents[part] = [done[key] for key in names if done.get(key) is not None]
            if given_up := {name: failed[key] for key, name in names.items() if key in failed}:
                contents[part].append(step.give_up(part, given_up))
        return contents

    def _rows(
        self, rows: Sequence[tuple[str, str | None]], name: str, small: bool
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """By the ids of the rows what those have left that are done, and why the others failed."""
        folder = self.plan.work / FOLDER / name
        before = {row["question_id"] for row in _written(folder)}
        left = [row for row in rows if _id(*row) not in before]
        failed = self._run(left, folder, small) if left else {}
        done: dict[str, Any] = {}
        for row in _written(folder):
            if row["status"] == "ok":
                done[row["question_id"]] = row["content"] and json.loads(row["content"])
            else:  # without the kind of the error, which only says where it was caught
                failed[row["question_id"]] = row["error"].partition(": ")[2]
        return done, failed

    def _run(self, rows: Sequence[tuple[str, str | None]], folder: Location, small: bool) -> dict[str, str]:
        """Do these rows; those that ended their workers, with the reason."""
        named = [{"question_id": _id(part, piece), "part": part, "piece": piece} for part, piece in rows]
        file = folder / f"{uuid.uuid4().hex}.parquet"
        folder.make_folder()
        file.write_bytes(parquet_bytes(pa.Table.from_pylist(named, schema=PARTS)))
        day, step = Partition.of(date=self.plan.day.isoformat()), self.step
        with self._resources(len(rows), small, PIECES_AT_ONCE if rows[0][1] else 1) as ask:
            stage = Stage(
                name=step.name,
                version=1,
                table=DONE,
                partition=day,
                source=Published(DONE.name, day, "", 0, (str(file),), len(rows)),
                columns=tuple(PARTS.names),
                worker=f"{__name__}:{StepWorker.__name__}",
                arguments={
                    "step": f"{step.__module__}:{step.__name__}",
                    "work": str(self.plan.work),
                    "arguments": self.arguments,
                },
                settings={},
                resources=ask,
            )
            address = self.plan.settings.address
            done = run_blocks(stage, folder / "done", folder / "checkpoint", 0, self.progress, address)
        return done.waiting

    @contextmanager
    def _resources(self, rows: int, small: bool, block_rows: int) -> Iterator[Resources]:
        """What a stage of these rows asks for; with a Ray session around it, unless it works here."""
        settings, cores = self.plan.settings, available_cores()
        ask = Resources(block_rows=block_rows, threads=cores, in_driver=settings.workers == 0)
        if settings.workers == 0 or (small and settings.workers is None):
            yield replace(ask, own_process=False)
            return
        with ray_session(settings.address):
            import ray

            resources, local = ray.cluster_resources(), named_cluster(settings.address) is None
            gpus = int(resources.get("GPU", 0)) if self.step.on_gpu and settings.device != "cpu" else 0
            cores = cores if local else max(1, int(resources.get("CPU", 1)))
            actors = min(rows, settings.workers or gpus or cores)
            threads = max(1, cores // actors) if local else 1
            yield replace(ask, actors=actors, num_gpus=min(1.0, gpus / actors), threads=threads)


def _id(part: str, piece: str | None) -> str:
    return part if piece is None else f"{part}/{piece}"


def _written(folder: Location) -> Iterator[dict[str, Any]]:
    """The rows that runs have written so far."""
    for file in (folder / "done").files(".parquet"):
        yield from read_rows(file, DONE.schema.names).to_pylist()
