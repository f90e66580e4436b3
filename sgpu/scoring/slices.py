"""Answer sets that are not scored yet in files of bounded size, and what the models say of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from sgpu.hashing import sha256_hex
from sgpu.logs.records import Reason
from sgpu.scoring.isolation import RecordCall, scored_apart
from sgpu.scoring.models.scorer import Scored, Scorer
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets.joining import Index
from sgpu.scoring.sets.relations import Relations
from sgpu.scoring.sets.shuffle import parts_for, regrouped, with_columns
from sgpu.scoring.sets.work_rows import TEXTS
from sgpu.scoring.tables import SCORES
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import parquet_bytes, read_rows
from sgpu.storage.store import SHORT
from sgpu.storage.tables import STRINGS

# Answers whose vectors are in memory at once: 100,000 x 384 float32 is 150 MB.
ANSWERS_AT_ONCE = 100_000
CHARACTERS_OF_A_SLICE = 64 * 2**20
SLICE = pa.schema([pa.field("set_key", pa.string()), pa.field("texts", STRINGS)])
_JUDGED = (
    "probability", "std", "unsafe", "accepted", "shadow_probability", "shadow_std", "shadow_unsafe", "n_used",
    "n_distinct", "spectrum", "top_eigenvalue_share", "head", "encoder", "encoder_sha256",
)  # fmt: skip
JUDGED = pa.schema([SCORES.schema.field(name) for name in _JUDGED])
OUTCOME = pa.schema([SLICE.field("set_key"), pa.field("refusal", pa.string()), pa.field("why", pa.string())])
SCORED = pa.schema([*OUTCOME, *JUDGED])
KeyedSet = tuple[str, Sequence[str]]


def slices_of(work: Location) -> Location:
    return work / "slices"


def scored_folder(work: Location) -> Location:
    return work / "scored"


def scored_file(work: Location, name: str) -> Location:
    return scored_folder(work) / f"{name}.parquet"


def scored_files(work: Location) -> list[Location]:
    """What was scored by any run of the plan."""
    return scored_folder(work).files(".parquet")


def unscored(relations: Relations, plan: DayPlan, index: Index) -> Iterator[KeyedSet]:
    """The answer sets of the logs that no file of scores holds, each once, by what they are known by."""
    files = index.locations(plan.work)
    for rows in with_columns(relations.run("unscored_rows"), files, TEXTS):
        yield from zip(rows["set_key"].to_pylist(), rows["texts"].to_pylist(), strict=True)
    answers = with_columns(relations.run("unscored_sets"), files, TEXTS)
    parts = parts_for(index.rows, index.characters)
    for part in regrouped(relations.folder / "answers", answers, parts, ("set_key", "place")):
        for key, together in groupby(part.select(["set_key", "texts"]).to_pylist(), itemgetter("set_key")):
            yield key, [text for answer in together for text in answer["texts"]]


def write_slices(work: Location, sets: Iterable[KeyedSet], most: int) -> list[tuple[str, int]]:
    """Write sets as slices of at most so many; their names and sizes. Equal sets make equal slices."""
    written, part, characters = [], list[KeyedSet](), 0

    def write() -> None:
        name = sha256_hex("\n".join(key for key, _ in part))[:SHORT]
        rows = [{"set_key": key, "texts": texts} for key, texts in part]
        table = pa.Table.from_pylist(rows, schema=SLICE)
        (slices_of(work) / f"{name}.parquet").write_bytes(parquet_bytes(table, compression="zstd"))
        written.append((name, len(part)))

    slices_of(work).make_folder()
    for key, texts in sets:
        if len(part) == most or characters > CHARACTERS_OF_A_SLICE:
            write()
            part, characters = [], 0
        part.append((key, texts))
        characters += sum(map(len, texts))
    if part:
        write()
    return written


def score_slice(plan: DayPlan, name: str, scorer: Scorer, failures: RecordCall) -> float:
    """Score a slice, unless that was done; the seconds that it took."""
    done = scored_file(plan.work, name)
    if done.is_file():
        return 0.0
    sets = read_rows(slices_of(plan.work) / f"{name}.parquet")
    keys, texts = sets["set_key"].to_pylist(), sets["texts"].to_pylist()
    started = time.monotonic()
    places, results, failed = scored_apart(
        f"{plan.key}/{name}", texts, lambda part: [scorer.score(few) for few in _parts(part)], failures
    )
    encoder = {"encoder": scorer.encoder_name, "encoder_sha256": scorer.encoder_sha256}
    rows = [row | encoder for result in results for scored in result for row in _rows(scored)]
    rows += [{"refusal": str(Reason.SCORING_FAILED), "why": why} for why in failed.values()]
    for place, row in zip((*places, *failed), rows, strict=True):
        row["set_key"] = keys[place]
    done.parent.make_folder()
    done.write_bytes(parquet_bytes(pa.Table.from_pylist(rows, schema=SCORED), compression="zstd"))
    return time.monotonic() - started


def _parts(sets: Sequence[Sequence[str]]) -> Iterator[Sequence[Sequence[str]]]:
    """Neighbouring sets with no more than `ANSWERS_AT_ONCE` answers; a larger one alone."""
    start, answers = 0, 0
    for place, texts in enumerate(sets):
        if place > start and answers + len(texts) > ANSWERS_AT_ONCE:
            yield sets[start:place]
            start, answers = place, 0
        answers += len(texts)
    if start < len(sets):
        yield sets[start:]


def _rows(scored: Scored) -> Iterator[dict[str, Any]]:
    """Of each set what a row of the score table says, or why it has none."""
    for place, problem in enumerate(scored.problems):
        if problem is not None:
            yield {"refusal": str(problem.reason), "why": problem.detail}
            continue
        judged = ("unsafe", "accepted", "shadow_unsafe")
        numbers = ("probability", "std", "shadow_probability", "shadow_std")
        yield {
            **{name: getattr(scored, name)[place] for name in judged},
            **{name: _number(getattr(scored, name)[place]) for name in numbers},
            "n_used": int(scored.n_used[place]),
            "n_distinct": int(scored.n_distinct[place]),
            "spectrum": scored.spectra[place].tolist(),
            "top_eigenvalue_share": float(scored.top_share[place]),
            "head": scored.heads[place],
        }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
