"""A data set turns its source into questions; it never samples, judges or splits by itself.

Each data set is one file with a `DatasetCard`, and one entry in `DATASETS`. Where ours depart from the paper
stands in departures.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import yaml

from sgpu.registry import Registry


class ImageReference(Protocol):
    """Where the bytes of one image are. Images are read when shards are written, never kept in memory."""

    @property
    def order(self) -> tuple[str, int, str]:
        """Images are read in this order, so that archives are passed through once."""
        ...

    def read(self) -> bytes:
        """The file's bytes as they are, undecoded. Raises DataError that names the file if they are gone."""
        ...


@dataclass(frozen=True)
class Question:
    """One question with the answers that count as right.

    ``references`` are what a judge compares with, best supported first; ``all_answers`` what the source
    holds, one entry an annotator. ``stratum`` is the class where a split keeps classes in proportion.
    """

    question_id: str
    text: str
    references: tuple[str, ...]
    group: str  # rows of one group never stand on both sides of a split
    meta: dict[str, Any] = field(default_factory=dict)
    all_answers: tuple[str, ...] = ()
    image: ImageReference | None = None
    stratum: str | None = None


@dataclass(frozen=True)
class RejectedRow:
    """A row of the source that cannot be used; the others go on."""

    file: str
    row: str  # "row 17", "line 3", or the row's own id
    reason: str
    remedy: str


@dataclass(frozen=True)
class Source:
    """All questions that a data set can give, with where they come from.

    ``pools`` maps "train" and "test" to their questions; one pool under "all" serves both. ``notes`` are
    told to the person and kept in the manifest (duplicates removed, images shared between the splits).
    """

    name: str
    revision: str
    licence: str
    citation: str
    pools: dict[str, list[Question]]
    rejected: tuple[RejectedRow, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadRequest:
    """What a loader is asked for.

    ``root`` is a folder with the source's files: downloaded from the Hub at ``revision``, unpacked by the
    user, or a mirror of either; None for data sets that come in a package. A loader finds by the file
    names which layout it is. ``check_rows`` False accepts another number of rows than the card expects.
    """

    root: Path | None = None
    revision: str = "local"
    options: Mapping[str, Any] = field(default_factory=dict)
    check_rows: bool = True


@dataclass(frozen=True)
class HubFiles:
    """Files of one Hub data set: which folder of the root they go to, and the glob patterns to fetch.

    ``revision`` is a commit (40 hex digits) where one is known; else a branch, whose commit is looked up
    when the data set is prepared and kept in the manifest.
    """

    repo: str
    patterns: tuple[str, ...]
    revision: str = "main"
    folder: str = ""  # below the root; "" is the root itself


@dataclass(frozen=True)
class Departure:
    """Where we do something else than the paper says, or where it is silent and something must be chosen."""

    topic: str
    paper: str
    choice: str
    why: str

    @classmethod
    def of(cls, dataset: str) -> tuple[Departure, ...]:
        """Those of one of our own data sets, as departures.yaml beside this file has them."""
        table = yaml.safe_load(Path(__file__).with_name("departures.yaml").read_bytes())
        return tuple(cls(**entry) for entry in table[dataset])


@dataclass(frozen=True, kw_only=True)
class DatasetCard:
    """What is known of a data set before a byte of it is read, and how it is loaded and asked.

    ``pools`` counts the labelled rows that exist, by pool: {"train": ..., "test": ...}, or {"all": ...} where
    one pool serves both splits; ``hub_rows`` those of the Hub's files, where they are fewer. ``paper`` is
    what the paper asks for (train, test). ``prompt`` names an entry of `sgpu.models.cards`. ``image_size``
    (width, height) and ``question_tokens`` are typical values, for the planner alone.
    """

    name: str
    title: str
    load: Callable[[LoadRequest], Source]
    licence: str
    citation: str
    prompt: str
    pools: Mapping[str, int] = field(default_factory=dict)
    paper: tuple[int, int] | None = None
    hub: tuple[HubFiles, ...] = ()
    hub_rows: int = 0
    raw: str = ""  # for a person: what to download and how to lay it out below `path`
    packages: tuple[str, ...] = ()  # comes in installed packages of these names: no `path`, no Hub
    gated: bool = False
    max_tokens: int | None = 64  # None: see `SamplingSpec.max_tokens`
    stop: tuple[str, ...] = ("\n",)
    embed: Literal["full", "final_answer"] = "full"
    classes: tuple[str, ...] = ()
    image_size: tuple[int, int] | None = None
    question_tokens: int = 20
    answer_tokens: int = 12
    departures: tuple[Departure, ...] = ()
    paper_name: str = ""  # what the paper calls it, if not the same

    @property
    def packaged(self) -> bool:
        """Whether it comes in an installed package."""
        return bool(self.packages)


DATASETS = Registry(
    "data set",
    {
        "worldfacts": "sgpu.datasets.sources.worldfacts:CARD",
        "advqa": "sgpu.datasets.sources.advqa:CARD",
        "vqa-rad": "sgpu.datasets.sources.vqa_rad:CARD",
        "ok-vqa": "sgpu.datasets.sources.ok_vqa:CARD",
        "vizwiz": "sgpu.datasets.sources.vizwiz:CARD",
        "cifar-10": "sgpu.datasets.sources.cifar10:CARD",
        "imagenette": "sgpu.datasets.sources.imagenette:CARD",
        "triviaqa": "sgpu.datasets.sources.triviaqa:CARD",
        "popqa": "sgpu.datasets.sources.popqa:CARD",
        "gsm8k": "sgpu.datasets.sources.gsm8k:CARD",
        "jsonl": "sgpu.datasets.own_questions:JSONL",
        "parquet": "sgpu.datasets.own_questions:PARQUET",
    },
    group="sgpu.datasets",
)
