"""A day's work as stages of the runner: a row names a part of it, and says afterwards what the part left.

Parts read files and leave files, so that a row is small whatever the logs hold. A part that fails, or ends
its worker, is taken to pieces (files, keys, sets) by the stage's actor: what fails by itself is given up, the
rest is done.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar

import pyarrow as pa

from sgpu.errors import StageError
from sgpu.hashing import canonical_json
from sgpu.provenance import available_cores
from sgpu.runtime.progress import Progress
from sgpu.runtime.runner import run_pools
from sgpu.runtime.session import named_cluster, ray_session
from sgpu.runtime.shelves import Task
from sgpu.runtime.stage import Resources, Stage, most_frequent
from sgpu.runtime.worker import StageWorker
from sgpu.scoring.plan import DayPlan
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import parquet_bytes, read_rows
from sgpu.storage.store import Partition, Published
from sgpu.storage.tables import QUESTION_ID, STATUS, Table

# More than these many pieces that fail, and more than half of all, are not the fault of the pieces.
MOST_REFUSED_ALWAYS = 20
FOLDER = "parts"
PARTS = pa.schema([QUESTION_ID, pa.field("part", pa.string()), pa.field("piece", pa.string())])
DONE = Table.of("parts", ("date",), QUESTION_ID, *STATUS, pa.field("content", pa.string()))
Content = dict[str, Any]


class Step(StageWorker, ABC):
    """One kind of work on the parts of a day: the worker of a stage, a `DivisibleWorker`.

    ``ends_stage`` are the errors that are no fault of a part. ``on_gpu``: whether a GPU helps.
    """

    name: ClassVar[str]
    ends_stage: ClassVar[tuple[type[Exception], ...]] = (Exception,)
    on_gpu: ClassVar[bool] = False

    def __init__(self, plan: DayPlan) -> None:
        self._plan = plan.without_tracking()

    @abstractmethod
    def work(self, part: str, pieces: Sequence[str] | None) -> Content:
        """Do a part, or some of its pieces; may be repeated. ``sets``, if it is there, is counted."""

    @abstractmethod
    def pieces(self, part: str) -> Sequence[str]:
        """Their names."""

    @abstractmethod
    def give_up(self, part: str, pieces: Mapping[str, str]) -> Content:
        """As `work`, for pieces that fail, with the reasons."""

    def __call__(self, batch: pa.Table) -> pa.Table:
        done: list[dict[str, Any]] = []
        for part, rows in groupby(batch.to_pylist(), itemgetter("part")):
            ids, pieces = zip(*((row["question_id"], row["piece"]) for row in rows), strict=True)
            content = self.work(part, None if pieces == (None,) else pieces)
            done += [{"question_id": row_id, "status": "ok"} for row_id in ids]
            done[-1]["content"] = canonical_json({"contents": [content]})
        return pa.Table.from_pylist(done, schema=DONE.schema)

    def split(self, row: pa.Table) -> pa.Table:
        part = row["part"][0].as_py()
        pieces = [
            {"question_id": f"{part}/{piece}", "part": part, "piece": piece} for piece in self.pieces(part)
        ]
        return pa.Table.from_pylist(pieces, schema=row.schema)

    def gather(self, row_id: str, pieces: pa.Table) -> pa.Table:
        left = _read_contents(pieces["content"])
        refused = {
            row["question_id"].removeprefix(f"{row_id}/"): _reason_of(row)
            for row in pieces.to_pylist()
            if row["status"] != "ok"
        }
        content = {
            "contents": [content for one in left for content in one["contents"]],
            "pieces": pieces.num_rows,
            "refused": refused,
        }
        row = {"question_id": row_id, "status": "ok", "content": canonical_json(content)}
        return pa.Table.from_pylist([row], schema=DONE.schema)

    def counts(self, output: pa.Table) -> dict[str, float]:
        contents = [content for left in _read_contents(output["content"]) for content in left["contents"]]
        return {"sets": sum(content.get("sets", 0) for content in contents)} if self.on_gpu else {}


@dataclass(frozen=True)
class StepRun:
    """One step of a day on its way; what an earlier run of the plan has done is not done again."""

    plan: DayPlan
    progress: Progress
    step: Step

    def done(self, parts: Sequence[str], *, small: bool) -> list[Content]:
        """What each part left, in their order; several contents of one that was taken to pieces.

        ``small`` work is done in this process, unless the settings ask for others. Raises StageError where
        so much fails that it is hardly the fault of the logs, and what ends the stage of the step.
        """
        folder = self.plan.work / FOLDER / self.step.name
        done = _read_done(folder)
        # Another run may have a part of the first one in work.
        for place in (folder, folder / uuid.uuid4().hex):
            if missing := [part for part in parts if part not in done]:
                self._run(missing, place, small)
                done |= _read_done(place)
        left = [done[part] for part in parts]
        self._check_refused(left, folder)
        contents: list[Content] = []
        for part, one in zip(parts, left, strict=True):
            contents += one["contents"]
            if one.get("refused"):
                contents.append(self.step.give_up(part, one["refused"]))
        return contents

    def _check_refused(self, left: Sequence[Content], folder: Location) -> None:
        pieces = sum(one.get("pieces", 0) for one in left)
        reasons = [why for one in left for why in one.get("refused", {}).values()]
        if len(reasons) > max(MOST_REFUSED_ALWAYS, pieces / 2):
            folder.delete()
            raise StageError(
                f"{self.step.name} of {self.plan.day}: {len(reasons)} of {pieces} pieces fail by themselves, "
                f"which is hardly the fault of the logs: {most_frequent(reasons)}. Remove the cause and run "
                "the same command again."
            )

    def _run(self, parts: Sequence[str], folder: Location, small: bool) -> None:
        rows = [{"question_id": part, "part": part} for part in parts]
        file = folder / f"{uuid.uuid4().hex}.parquet"
        folder.make_folder()
        file.write_bytes(parquet_bytes(pa.Table.from_pylist(rows, schema=PARTS)))
        day = Partition.of(date=self.plan.day.isoformat())
        with self._resources(len(rows), small) as ask:
            stage = Stage(
                name=self.step.name,
                version=1,
                table=DONE,
                partition=day,
                source=Published(DONE.name, day, "", 0, (str(file),), len(rows)),
                columns=tuple(PARTS.names),
                worker=self.step,
                resources=ask,
            )
            address = self.plan.settings.address
            list(run_pools([[Task(stage, folder / "done")]], self.progress, address))

    @contextmanager
    def _resources(self, rows: int, small: bool) -> Iterator[Resources]:
        """What a stage of so many rows asks for; with a Ray session around it, unless it works here."""
        settings, cores = self.plan.settings, available_cores()
        ask = Resources(block_rows=1, threads=cores, in_driver=settings.workers == 0)
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


def _read_contents(contents: pa.ChunkedArray) -> list[Content]:
    return [json.loads(content) for content in contents.drop_null().to_pylist()]


def _reason_of(row: Mapping[str, str]) -> str:
    """Return why a piece failed, without the kind of the error, which only says where it was caught."""
    return row["error"].partition(": ")[2] if row["status"] == "failed" else row["error"]


def _read_done(folder: Location) -> dict[str, Content]:
    """What runs have left so far, by part."""
    done: dict[str, Content] = {}
    for file in (folder / "done").files(".parquet"):
        rows = read_rows(file, ["question_id", "content"])
        done |= zip(rows["question_id"].to_pylist(), _read_contents(rows["content"]), strict=True)
    return done
