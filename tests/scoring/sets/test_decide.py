"""What the relations decide of many rows is what the rules decide of the rows of one request."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sgpu.logs.records import Reason
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets import dedupe
from sgpu.scoring.sets.decide import decide_all, load_relations
from sgpu.scoring.sets.dedupe import (
    CommittedRequest,
    Fate,
    ScoreCandidate,
    content_sha256,
    decide,
)
from sgpu.scoring.sets.joining import Index
from sgpu.scoring.sets.relations import Relations
from sgpu.scoring.sets.work_rows import ITEMS_OF_A_FILE, RECORD, SINGLE, Row, table_of
from sgpu.scoring.slices import unscored
from sgpu.scoring.tables import SCORES, Base
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import write_rows

DAY, BEFORE = "2026-11-20", "2026-11-19"


def answered(request_id: str, texts: list[str], line: int, model: str = "m", split: int = 0) -> Row:
    return {
        "kind": RECORD, "split": split, "line": line, "request_id": request_id, "timestamp": 0,
        "model": model, "texts": texts, "dropped": [], "content": content_sha256(model, texts),
    }  # fmt: skip


def single(name: str, line: int, timestamp: int, text: str = "a", **more: Any) -> Row:
    row = answered(name, [f"{name} {text}"], line)
    return row | {"kind": SINGLE, "set_id": "s", "timestamp": timestamp, **more}


class Day:
    """Rows of the logs in files, and what is committed, beneath a folder."""

    def __init__(
        self, folder: Path, files: list[list[Row]], committed: Sequence[Row] = (), **settings: Any
    ) -> None:
        root = Location.of(folder)
        (root / "ingest").make_folder()
        names = [f"{number}.parquet" for number in range(len(files))]
        for name, rows in zip(names, files, strict=True):
            write_rows(root / "ingest" / name, table_of(rows))
        base = []
        for row in committed:
            path = f"date={row['date']}/{len(base)}.parquet"
            (root / "scores" / path).parent.make_folder()
            columns = {name: value for name, value in row.items() if name != "date"}
            write_rows(
                root / "scores" / path, SCORES.schema.empty_table().from_pylist([columns], SCORES.schema)
            )
            base.append((row["date"], path))
        snapshot = SimpleNamespace(files=[SimpleNamespace(path="a.jsonl")])
        plan: Any = SimpleNamespace(
            work=root, out=root, day=SimpleNamespace(isoformat=lambda: DAY), snapshot=snapshot,
            splits=[SimpleNamespace(file=0)] * 3, settings=SimpleNamespace(**{"rescore": False} | settings),
        )  # fmt: skip
        self.plan, self.base = cast(DayPlan, plan), Base(tuple(base))
        self.index = Index(tuple(names), sum(map(len, files)), 1000, (0, 0, 0))

    def decided(self, relations: Relations) -> None:
        load_relations(relations, self.plan, self.index, self.base)
        decide_all(relations, self.plan, self.index)


@pytest.fixture
def relations(tmp_path: Path) -> Iterator[Relations]:
    with Relations(tmp_path / "relations") as opened:
        yield opened


def fates(relations: Relations) -> dict[int, tuple[str, str | None]]:
    """Of each row, with the reason."""
    rows = relations._connection.execute("FROM fates WHERE fate <> 'contested'").fetchall()
    assert len(rows) == len({row[0] for row in rows})
    return {item: (fate, reason) for item, fate, reason, _ in rows}


@pytest.mark.parametrize("seed", range(20))
def test_many_deliveries_are_decided_as_the_rules_decide_them_one_by_one(
    relations: Relations, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    texts = [["a", "b"], ["b", "a"], ["a", "b", "c"], ["a", "c"], ["x", "y"]]
    rescore = chance.random() < 0.3
    rows = [
        answered(
            f"q{chance.randrange(60)}",
            chance.choice(texts[: chance.randrange(1, 6)]),
            line,
            chance.choice("mn"),
        )
        for line in range(200)
    ]
    committed = []
    for number in range(0, 60, 2):
        told = content_sha256("m", chance.choice(texts))
        day = chance.choice([DAY, BEFORE])
        committed.append({"request_id": f"q{number}", "model": "m", "content_sha256": told, "date": day})
    day = Day(tmp_path, [rows[:90], rows[90:]], committed, rescore=rescore)
    day.decided(relations)
    numbered = [number * ITEMS_OF_A_FILE + place for number, n in ((0, 90), (1, 110)) for place in range(n)]
    candidates = [
        ScoreCandidate(
            row["request_id"],
            row["content"],
            (item,),
            0,
            row["model"],
            texts=tuple(row["texts"]),
        )
        for item, row in zip(numbered, rows, strict=True)
    ]
    standing = {
        ("m", row["request_id"]): CommittedRequest(
            row["content_sha256"], row["date"], rescore and row["date"] == DAY
        )
        for row in committed
    }
    decision = decide(candidates, standing)
    expected = {row.item: (str(row.fate), row.reason and str(row.reason)) for row in decision.fates}
    expected |= {candidate.items[0]: (str(Fate.SCORED), None) for candidate in decision.to_score}
    assert fates(relations) == expected
    assert {fate for fate, _ in expected.values()} == {"scored", "refused", "duplicate", "already"}


def test_of_the_same_row_the_first_in_the_logs_counts_wherever_it_was_read(
    relations: Relations, tmp_path: Path
) -> None:
    later, first = answered("x", ["a", "b"], 1, split=1), answered("x", ["b", "a"], 7, split=0)
    Day(tmp_path, [[later], [first]]).decided(relations)
    assert fates(relations) == {0: ("duplicate", None), ITEMS_OF_A_FILE: ("scored", None)}


def test_answers_of_many_files_are_a_set_with_their_texts_in_the_order_of_their_time(
    relations: Relations, tmp_path: Path
) -> None:
    files = [[single(f"r{number}", number, 100 - number)] for number in range(4)]
    day = Day(tmp_path, files)
    day.decided(relations)
    [(_, texts, _)] = unscored(relations, day.plan, day.index)
    assert texts == ["r3 a", "r2 a", "r1 a", "r0 a"]


def test_deliveries_and_contradictions_do_not_take_the_place_of_an_answer(
    relations: Relations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedupe, "MAX_SAMPLES", 5)
    rows = [single(f"r{number}", number, 1000 - number) for number in range(8)]
    again = [row | {"line": row["line"] + 100} for row in rows[:6]]
    other = single("r7", 200, 993, "another")
    day = Day(tmp_path, [rows, again, [other]])
    day.decided(relations)
    [(_, texts, _)] = unscored(relations, day.plan, day.index)
    assert texts == [f"r{number} a" for number in (6, 5, 4, 3, 2)]
    came = list(fates(relations).values())
    assert came.count(("duplicate", None)) == 6
    assert came.count(("refused", Reason.CONFLICT)) == came.count(("refused", Reason.GROUP_FULL)) == 2


def test_equal_sets_are_scored_once_and_what_is_scored_not_again(
    relations: Relations, tmp_path: Path
) -> None:
    rows = [answered(f"q{number}", ["a", "b"] if number < 3 else ["c", "d"], number) for number in range(5)]
    day = Day(tmp_path, [rows])
    day.decided(relations)
    sets = list(unscored(relations, day.plan, day.index))
    assert sorted(texts for _, texts, _ in sets) == [["a", "b"], ["c", "d"]]
    relations._connection.execute("INSERT INTO scored (item, set_key) VALUES (0, ?)", [sets[0][0]])
    assert list(unscored(relations, day.plan, day.index)) == sets[1:]


def test_equal_answers_to_different_questions_are_sets_of_their_own(
    relations: Relations, tmp_path: Path
) -> None:
    asked = ["Who?", "Where?", "Who?", None]
    rows = [
        answered(f"q{number}", ["a", "b"], number) | {"question": one, "asked": one}
        for number, one in enumerate(asked)
    ]
    singles = [
        single(f"r{number}", 9 + number, 10 - number) | {"question": one, "asked": one}
        for number, one in enumerate(["late", "first"])
    ]
    day = Day(tmp_path, [rows, singles])
    day.decided(relations)
    sets = list(unscored(relations, day.plan, day.index))
    assert [question for _, _, question in sets] == ["Who?", "Where?", None, "first"]
    assert sets[2][0] == rows[0]["content"]  # as ever, where no model reads questions
