"""What of a day's rows is new and what belongs together, against the score table as it is now."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import pyarrow as pa

from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets.dedupe import (
    CommittedRequest,
    Decision,
    Fate,
    ItemFate,
    ScoreCandidate,
    decide,
    grouped,
)
from sgpu.scoring.sets.joining import Index
from sgpu.scoring.sets.relations import Relations, Rows
from sgpu.scoring.sets.work_rows import items_of
from sgpu.scoring.tables import DATE, IDS, SCORES, Base, read_columns

GROUPS_AT_ONCE = 10_000


def load(relations: Relations, plan: DayPlan, index: Index, base: Base) -> None:
    """The day's rows, and what the table holds of the days around."""
    relations.make("tables")
    columns = [name for name in relations.schema("items").names if name != "item"]
    relations.add("items", items_of(plan.work / "ingest", index.files, columns))
    relations.add("committed", committed(plan, base))
    files = (plan.snapshot.files[split.file].path for split in plan.splits)
    places = enumerate(zip(files, index.lines_before, strict=True))
    relations.add(
        "splits",
        ({"split": split, "file": file, "lines_before": lines} for split, (file, lines) in places),
    )


def committed(plan: DayPlan, base: Base) -> Rows:
    """Ids and contents of the files of ``base``; of the day itself whether they are replaced."""
    schema = pa.schema([SCORES.schema.field(name) for name in IDS])
    added = [pa.field(DATE, pa.string()), pa.field("replaced", pa.bool_())]
    root, day = plan.out / SCORES.name, plan.day.isoformat()

    def parts() -> Iterator[pa.Table]:
        for of, path in base.files:
            rows = read_columns(root / path, SCORES.schema, IDS)
            replaced = plan.settings.rescore and of == day
            for field, value in zip(added, (of, replaced), strict=True):
                rows = rows.append_column(field, pa.array([value] * len(rows), field.type))
            yield rows

    return Rows(pa.schema([*schema, *added]), parts())


def decide_all(relations: Relations, plan: DayPlan, index: Index) -> None:
    """Give every row its fate, and make the sets of single answers."""
    numbers = itertools.count(-1, -1)
    for piece in _pieces(_answers(relations)):
        sets = (made for decision in piece for made in decision.to_score)
        columns = relations.schema("sets").names
        rows = ({name: getattr(made, name, None) for name in columns} for made in sets)
        relations.add("sets", [row | {"item": next(numbers)} for row in rows])
        relations.add("fates", (asdict(fate) for decision in piece for fate in decision.fates))
    relations.make("settled")
    for piece in _pieces(_contested(relations, plan, index)):
        first = (ItemFate(made.items[0], Fate.SCORED) for decision in piece for made in decision.to_score)
        relations.add("fates", map(asdict, first))
        relations.add("fates", (asdict(fate) for decision in piece for fate in decision.fates))


def _answers(relations: Relations) -> Iterator[Decision]:
    """Set by set of single answers."""
    for set_id, rows in _groups(relations.rows("answers"), "set_id"):
        answers = [_candidate(row) for row in rows]
        elsewhere = {one.key for one, row in zip(answers, rows, strict=True) if row["elsewhere"]}
        yield grouped(set_id, answers, elsewhere, rows[0]["scored"])


def _contested(relations: Relations, plan: DayPlan, index: Index) -> Iterator[Decision]:
    """Request by request. Of a set, which has no texts of its own, only its content is compared."""
    if not any(row["fate"] == "contested" for row in relations.rows("counts")):
        return
    texts = items_of(plan.work / "ingest", index.files, ["texts"])
    for _, rows in _groups(relations.rows("contested", texts), "request_id", "model"):
        candidates, first = [_candidate(row) for row in rows], rows[0]
        standing = {}
        if first["content_sha256"] is not None:
            standing = {
                candidates[0].key: CommittedRequest(first["content_sha256"], first["date"], first["replaced"])
            }
        yield decide(candidates, standing)


def _candidate(row: Mapping[str, Any]) -> ScoreCandidate:
    names = ("request_id", "content", "timestamp", "model", "route", "label", "askable", "ordered")
    return ScoreCandidate(
        **{name: row[name] for name in names}, items=(row["item"],), texts=tuple(row.get("texts") or ())
    )


def _groups(rows: Iterable[dict[str, Any]], *names: str) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    return ((key, list(together)) for key, together in groupby(rows, itemgetter(*names)))


def _pieces(decisions: Iterator[Decision]) -> Iterator[list[Decision]]:
    while piece := list(islice(decisions, GROUPS_AT_ONCE)):
        yield piece
