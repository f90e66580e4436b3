"""What of a day's rows is new and what belongs together, against the score table as it is now."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from sgpu.scoring.sets.shuffle import parts_for, regrouped, with_columns
from sgpu.scoring.sets.work_rows import SCHEMA, TEXTS, items_of
from sgpu.scoring.tables import DATE, IDS, SCORES, Base, read_columns

GROUPS_AT_ONCE = 10_000


def load_relations(relations: Relations, plan: DayPlan, index: Index, base: Base) -> None:
    """Load the day's rows, and what the table holds of the days around."""
    relations.make("tables")
    columns = pa.schema([field for field in SCHEMA if field.name in relations.schema("items").names])
    relations.add("items", items_of(index.locations(plan.work), columns))
    relations.add("committed", committed_rows(plan, base))
    files = (plan.snapshot.files[split.file].path for split in plan.splits)
    places = enumerate(zip(files, index.lines_before, strict=True))
    relations.add(
        "splits",
        ({"split": split, "file": file, "lines_before": lines} for split, (file, lines) in places),
    )


def committed_rows(plan: DayPlan, base: Base) -> Rows:
    """Return ids and contents of the files of ``base``; of the day itself whether they are replaced."""
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
        elsewhere = {answer.key for answer, row in zip(answers, rows, strict=True) if row["elsewhere"]}
        yield grouped(set_id, answers, elsewhere, rows[0]["scored"])


def _contested(relations: Relations, plan: DayPlan, index: Index) -> Iterator[Decision]:
    """Request by request. Of a set, which has no texts of its own, only its content is compared."""
    fates = {row["fate"]: row["rows"] for row in relations.rows("counts")}
    if not (rows := fates.get("contested", 0)):
        return
    texts = with_columns(relations.run("contested"), index.locations(plan.work), TEXTS)
    parts = parts_for(rows, index.characters * rows / index.rows)
    order = ("request_id", "model", "split", "line", "item")
    for part in regrouped(relations.folder / "contested", texts, parts, order):
        for _, of_request in _groups(part.to_pylist(), "request_id", "model"):
            yield _settled(of_request)


def _settled(rows: Sequence[Mapping[str, Any]]) -> Decision:
    """All rows of one request, against what is committed of it."""
    candidates, first = [_candidate(row) for row in rows], rows[0]
    if first["content_sha256"] is None:
        return decide(candidates, {})
    committed = CommittedRequest(first["content_sha256"], first["date"], first["replaced"])
    return decide(candidates, {candidates[0].key: committed})


def _candidate(row: Mapping[str, Any]) -> ScoreCandidate:
    names = ("request_id", "content", "asked", "timestamp", "model", "route", "label", "askable")
    return ScoreCandidate(
        **{name: row[name] for name in names}, items=(row["item"],), texts=tuple(row.get("texts") or ())
    )


def _groups(rows: Iterable[dict[str, Any]], *names: str) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    return ((key, list(together)) for key, together in groupby(rows, itemgetter(*names)))


def _pieces(decisions: Iterator[Decision]) -> Iterator[list[Decision]]:
    while piece := list(islice(decisions, GROUPS_AT_ONCE)):
        yield piece
