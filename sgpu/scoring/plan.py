"""What one run of one day works on, fixed before the first row is read: logs, models, settings, key."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from sgpu.errors import HeldError
from sgpu.logs.snapshot import Snapshot, Split, splits_of
from sgpu.models.weights import cache_dir
from sgpu.provenance import code_version
from sgpu.runtime.lock import local_lock
from sgpu.scoring.settings import ScoreSettings
from sgpu.storage.location import Location
from sgpu.storage.store import SHORT, fingerprint

# Raised when the code changes what comes out for the same logs, model and settings.
VERSION = 1
# Raised when the files of work change: what another version began is begun again, and nothing is mixed.
LAYOUT = 6


@dataclass(frozen=True)
class ModelName:
    """A model that cannot move any more: a version and the sha256 of its files.

    ``reads_questions``: it has classifiers of agreement on content.
    """

    uri: str
    name: str
    version: str
    sha256: str
    reads_questions: bool = False

    @property
    def label(self) -> str:
        return f"{self.name}/{self.version}"


@dataclass(frozen=True)
class Models:
    champion: ModelName
    challenger: ModelName | None = None

    @property
    def both(self) -> list[ModelName]:
        return [self.champion] if self.challenger is None else [self.champion, self.challenger]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Models:
        challenger = content["challenger"]
        return cls(ModelName(**content["champion"]), None if challenger is None else ModelName(**challenger))


@dataclass(frozen=True)
class DayPlan:
    """All that decides the rows that come out; the same plan has the same `key` on every machine."""

    day: date
    settings: ScoreSettings
    models: Models
    snapshot: Snapshot

    @property
    def content(self) -> dict[str, Any]:
        named = {
            role: None if model is None else {"label": model.label, "sha256": model.sha256}
            for role, model in (("model", self.models.champion), ("challenger", self.models.challenger))
        }
        return {**named, **request_content(self.settings, self.day, self.snapshot)}

    @cached_property
    def key(self) -> str:
        """The idempotency key (sha256, hex)."""
        return fingerprint(self.content)

    @cached_property
    def reads_questions(self) -> bool:
        """Whether a model of the plan reads questions, so that they are kept with their answers."""
        return any(model.reads_questions for model in self.models.both)

    @property
    def out(self) -> Location:
        return Location.of(self.settings.out)

    @property
    def logs(self) -> Location:
        return Location.of(self.settings.logs)

    @cached_property
    def work(self) -> Location:
        # What was read in parts of one size cannot be gone on with in parts of another.
        parts = {"key": self.key, "split_bytes": self._split_bytes, "layout": LAYOUT}
        return self.out / "work" / fingerprint(parts)[:SHORT]

    @property
    def scratch(self) -> Path:
        """A folder of this machine for what one run needs and no other."""
        return scoring_folder(self.settings) / self.work.name

    @property
    def folder(self) -> str:
        """The day that the folder of the logs is named by; empty where the clock of each row decides."""
        return self.day.isoformat() if self.snapshot.by_folder else ""

    @cached_property
    def code_version(self) -> str:
        return code_version()

    @cached_property
    def splits(self) -> list[Split]:
        return splits_of(self.snapshot, self._split_bytes)

    @property
    def _split_bytes(self) -> int:
        return max(1, int(self.settings.split_mb * 2**20))

    @cached_property
    def units(self) -> list[range]:
        """Neighbouring splits that one worker reads into one file: many small files make few large ones."""
        units, first, size = [], 0, 0
        for split in self.splits:
            if split.number > first and size + split.end - split.start > self._split_bytes:
                units.append(range(first, split.number))
                first, size = split.number, 0
            size += split.end - split.start
        return [*units, range(first, len(self.splits))] if self.splits else []

    def without_tracking(self) -> DayPlan:
        """Return the plan for workers: they track nothing, and the address of a store may hold a password."""
        settings = self.settings.model_copy(update={"tracking": None})
        return dataclasses.replace(self, settings=settings)


def request_content(settings: ScoreSettings, day: date, snapshot: Snapshot) -> dict[str, Any]:
    """Return `DayPlan.content` without the models: it is not yet known which ones the names stand for."""
    takes_undated = settings.undated and not snapshot.by_folder
    return {
        "version": VERSION,
        "day": day.isoformat(),
        "snapshot": snapshot.sha256,
        "settings": settings.content() | ({"undated": str(settings.date)} if takes_undated else {}),
    }


def scoring_folder(settings: ScoreSettings) -> Path:
    """Return this machine's folder of the score table: models, and the locks of runs on this machine."""
    out = Location.of(settings.out)
    if out.is_local:
        return out.local / "work"
    return cache_dir() / "scoring" / hashlib.sha256(str(out).encode()).hexdigest()[:12]


@contextmanager
def day_lock(settings: ScoreSettings, day: date) -> Iterator[None]:
    """Keep other runs of this machine from the day; two machines at once do some work twice.

    Raises HeldError that names the day.
    """
    folder = scoring_folder(settings) / "locks" / day.isoformat()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(local_lock(Location.of(folder), folder))
        except HeldError as error:
            raise HeldError(
                f"another run is scoring {day} into {settings.out}. Wait for it and run this again: there is "
                f"then nothing left to do, or only what is new. ({error})"
            ) from None
        yield
