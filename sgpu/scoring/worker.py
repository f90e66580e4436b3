"""One process of the crew: reads units of the logs, joins them and scores buckets, for any day of a run."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sgpu.errors import StageError
from sgpu.scoring.asking_again import open_resampler
from sgpu.scoring.buckets import Bucket
from sgpu.scoring.isolation import LONE_DEATHS, TRIES, Book
from sgpu.scoring.plan import Models, Plan
from sgpu.scoring.score_bucket import BucketScoring, SetScorer
from sgpu.scoring.sets.committed import Base
from sgpu.scoring.sets.index import Index
from sgpu.scoring.sets.ingest import Attempt, ingest
from sgpu.scoring.sets.joining import join
from sgpu.storage.location import Location

# A worker may die of many things. Work that ends several is searched for the file, the rows or the set that
# does it, but not for ever.
MOST_DEATHS = 200


class Worker:
    """Its methods take and give names and counts; rows stay in files. All may be repeated.

    ``work`` is the address of a plan's folder. ``scorer`` names ("module:function") what opens the models.
    ``workers``: how many there are.
    """

    def __init__(self, book: Book, scorer: str, models: str, workers: int = 1) -> None:
        self._book = book
        module, _, name = scorer.partition(":")
        self._open_scorer = getattr(importlib.import_module(module), name)
        self._models, self._workers = models, workers
        self._plans: dict[str, Plan] = {}
        self._scorings: dict[str, BucketScoring] = {}
        self._opened: tuple[Models, SetScorer] | None = None

    def ingest(self, work: str, unit: int) -> dict[str, Any]:
        with self._bounded(f"reading unit {unit} in {work}") as alone:
            return ingest(self._plan(work), unit, alone)

    def join(self, work: str, part: Bucket, files: tuple[str, ...]) -> dict[str, Any]:
        with self._bounded(f"joining {part.name} in {work}") as alone:
            return join(self._plan(work), part, files, alone)

    def score(self, work: str, bucket: Bucket, base: Base, earlier: tuple[Base, ...]) -> dict[str, Any]:
        with self._bounded(f"scoring {bucket.name} in {work}"):
            return self._scoring(work).done(bucket, base, earlier)

    def profile(self, work: str) -> Any:
        """The training profile of the plan's champion; None if it has none."""
        return self._scoring(work).scorer.profile

    def _plan(self, work: str) -> Plan:
        """The last one is kept, for as long as this worker lives: a later run may leave another there."""
        if work not in self._plans:
            self._plans = {work: Plan.load(Location.of(work))}
        return self._plans[work]

    def _scoring(self, work: str) -> BucketScoring:
        if work not in self._scorings:
            plan, index = self._plan(work), Index.load(Location.of(work))
            if index is None:
                raise StageError(f"{work} holds no index of the logs; run the same command again")
            scorer = self._scorer(plan)
            resampler = open_resampler(plan, self._workers)
            self._scorings = {work: BucketScoring(plan, index, scorer, self._book, resampler)}
        return self._scorings[work]

    def _scorer(self, plan: Plan) -> SetScorer:
        """Of the days of a run most have the same models."""
        if self._opened is None or self._opened[0] != plan.models:
            self._opened = None  # the old models go before the new ones come
            self._opened = (plan.models, self._open_scorer(plan, self._models))
        return self._opened[1]

    @contextmanager
    def _bounded(self, what: str) -> Iterator[Attempt | None]:
        """How to try its parts by themselves, once it has ended enough workers; None before."""
        if (deaths := self._book("begin", what)) >= MOST_DEATHS:
            raise StageError(
                f"{what} has ended its worker process {deaths} times. Look at the machine's memory."
            )
        yield partial(self._alone, what) if deaths >= TRIES else None
        self._book("end", what)

    @contextmanager
    def _alone(self, what: str, part: int) -> Iterator[int]:
        """One try at a part of what ends workers; how many have ended there. A part given up stays so."""
        deaths = self._book("begin", f"{what}, part {part}")
        yield deaths
        if deaths < LONE_DEATHS:
            self._book("end", f"{what}, part {part}")
