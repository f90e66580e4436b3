"""Answer sets that are not scored yet in files of bounded size, and what the models say of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar

import pyarrow as pa

from sgpu.errors import SgpuError
from sgpu.hashing import sha256_hex
from sgpu.logs.records import Reason
from sgpu.scoring.models.pinning import ScorerSource
from sgpu.scoring.parts import Step
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets.joining import Index
from sgpu.scoring.sets.relations import Relations
from sgpu.scoring.sets.shuffle import parts_for, regrouped, with_columns
from sgpu.scoring.sets.work_rows import ANSWERED
from sgpu.scoring.tables import REFUSAL, SAID
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import parquet_bytes, read_rows
from sgpu.storage.store import SHORT
from sgpu.storage.tables import STRINGS

# Answers whose vectors are in memory at once: 100,000 x 384 float32 is 150 MB.
ANSWERS_AT_ONCE = 100_000
CHARACTERS_OF_A_SLICE = 64 * 2**20
SLICE = pa.schema(
    [pa.field("set_key", pa.string()), pa.field("texts", STRINGS), pa.field("question", pa.string())]
)
OUTCOME = pa.schema([SLICE.field("set_key"), *REFUSAL])
SCORED = pa.schema([SLICE.field("set_key"), *SAID])
KeyedSet = tuple[str, Sequence[str], str | None]  # set key, answers, question


def slices_of(work: Location) -> Location:
    return work / "slices"


def scored_folder(work: Location) -> Location:
    return work / "scored"


def scored_files(work: Location) -> list[Location]:
    """What was scored by any run of the plan."""
    return scored_folder(work).files(".parquet")


def unscored(relations: Relations, plan: DayPlan, index: Index) -> Iterator[KeyedSet]:
    """Yield the answer sets of the logs that no file of scores holds, each once, with their questions.

    A set of single answers has the question of the first.
    """
    files = index.locations(plan.work)
    for rows in with_columns(relations.run("unscored_rows"), files, ANSWERED):
        yield from zip(*(rows[name].to_pylist() for name in SLICE.names), strict=True)
    answers = with_columns(relations.run("unscored_sets"), files, ANSWERED)
    parts = parts_for(index.rows, index.characters)
    for part in regrouped(relations.folder / "answers", answers, parts, ("set_key", "place")):
        for key, together in groupby(part.select(SLICE.names).to_pylist(), itemgetter("set_key")):
            answered = list(together)
            yield key, [text for one in answered for text in one["texts"]], answered[0]["question"]


def write_slices(work: Location, sets: Iterable[KeyedSet], most: int) -> dict[str, int]:
    """Write sets as slices of at most so many; their sizes by name. Equal sets make equal slices.

    Answers are sorted, so of several that agree equally with the others the first in that order is shown.
    """
    written, part, characters = dict[str, int](), list[KeyedSet](), 0

    def write() -> None:
        name = _name_of(key for key, *_ in part)
        # A set is known by its answers in whatever order: so are the last digits of what is said of it.
        rows = [
            {"set_key": key, "texts": sorted(texts), "question": question} for key, texts, question in part
        ]
        table = pa.Table.from_pylist(rows, schema=SLICE)
        (slices_of(work) / f"{name}.parquet").write_bytes(parquet_bytes(table, compression="zstd"))
        written[name] = len(part)

    slices_of(work).make_folder()
    for key, texts, question in sets:
        if len(part) == most or characters > CHARACTERS_OF_A_SLICE:
            write()
            part, characters = [], 0
        part.append((key, texts, question))
        characters += sum(map(len, texts)) + len(question or "")
    if part:
        write()
    return written


class SliceScorer(Step):
    """Scores slices; a piece is a set, by its position in the slice."""

    name: ClassVar[str] = "scoring"
    ends_stage: ClassVar[tuple[type[Exception], ...]] = (SgpuError,)
    on_gpu: ClassVar[bool] = True

    def __init__(self, plan: DayPlan, source: ScorerSource) -> None:
        super().__init__(plan)
        self._source = source

    def work(self, part: str, pieces: Sequence[str] | None) -> dict[str, Any]:
        started = time.monotonic()
        sets = self._sets(part, pieces)
        scorer = self._source.of(self._plan)
        try:
            texts, asked = (sets[name].to_pylist() for name in ("texts", "question"))
            said = [scorer.score(texts[part], asked[part]) for part in _batches(texts)]
        except SgpuError:
            raise
        except Exception as error:  # what it says may be the text of an answer
            raise RuntimeError(f"could not be scored: {type(error).__name__}") from None
        file = self._save(sets, pa.concat_tables(said))
        return {"file": file, "sets": len(sets), "seconds": time.monotonic() - started}

    def pieces(self, part: str) -> list[str]:
        return [str(position) for position in range(len(self._sets(part, None)))]

    def give_up(self, part: str, pieces: Mapping[str, str]) -> dict[str, Any]:
        refused = [{"refusal": str(Reason.SCORING_FAILED), "why": why} for why in pieces.values()]
        said = pa.Table.from_pylist(refused, schema=SAID)
        return {"file": self._save(self._sets(part, list(pieces)), said), "seconds": 0.0}

    def _sets(self, part: str, pieces: Sequence[str] | None) -> pa.Table:
        sets = read_rows(slices_of(self._plan.work) / f"{part}.parquet")
        return sets if pieces is None else sets.take(pa.array(map(int, pieces), pa.int64()))

    def _save(self, sets: pa.Table, said: pa.Table) -> str:
        """Write the outcome of the sets, under a name that they alone decide."""
        file = scored_folder(self._plan.work) / f"{_name_of(sets['set_key'].to_pylist())}.parquet"
        file.parent.make_folder()
        keyed = said.add_column(0, SCORED.field("set_key"), sets["set_key"])
        file.write_bytes(parquet_bytes(keyed, compression="zstd"))
        return file.name


def _name_of(keys: Iterable[str]) -> str:
    return sha256_hex("\n".join(keys))[:SHORT]


def _batches(sets: Sequence[Sequence[str]]) -> Iterator[slice]:
    """Yield neighbouring sets, by place, with no more than `ANSWERS_AT_ONCE` answers; a larger one alone."""
    start, answers = 0, 0
    for position, texts in enumerate(sets):
        if position > start and answers + len(texts) > ANSWERS_AT_ONCE:
            yield slice(start, position)
            start, answers = position, 0
        answers += len(texts)
    if start < len(sets):
        yield slice(start, len(sets))
