"""What is held of the rows of a bucket while it is decided which of them count."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from sgpu.logs.records import Reason
from sgpu.scoring.sets import candidates, dedupe
from sgpu.scoring.sets.candidates import BucketRows
from sgpu.scoring.sets.work_rows import SINGLE, table_of
from sgpu.scoring.tables import DATE, IDS, SCORES

MOST = 5
NOTHING = SCORES.schema.empty_table().select(IDS).append_column(DATE, pa.array([], pa.string()))


@pytest.fixture(autouse=True)
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (candidates, dedupe):
        monkeypatch.setattr(module, "MAX_SAMPLES", MOST)


def answers(n: int, set_id: str = "s", **fields: object) -> list[dict[str, object]]:
    return [
        {
            "place": 0, "kind": SINGLE, "split": 0, "line": i, "request_id": f"{set_id}-{i:03}",
            "timestamp": 1000 - i, "model": "m", "texts": [f"{set_id} answer {i}"], "dropped": [],
            "set_id": set_id, **fields,
        }
        for i in range(n)
    ]  # fmt: skip


def bucket(*parts: list[dict[str, object]]) -> BucketRows:
    def read() -> Iterator[pa.Table]:
        return iter([table_of(part) for part in parts])

    return BucketRows.of(read)


def held(rows: BucketRows) -> int:
    return sum(len(one.texts) for of_set in rows.answers.values() for one in of_set)


def test_of_a_crowded_set_no_texts_are_held_and_those_that_count_are_scored() -> None:
    rows = answers(40)
    found = bucket(rows[:3], rows[3:30], rows[30:], answers(MOST, "other"))
    assert held(found) == MOST  # of the other set, which is not crowded
    decision = found.decided(NOTHING, "2026-11-20", rescore=False)
    made = {one.request_id: one.texts for one in decision.to_score}
    # The first by their clock, which are the last of the file.
    assert made["s"] == tuple(f"s answer {i}" for i in range(39, 34, -1))
    assert sorted(made["other"]) == [f"other answer {i}" for i in range(MOST)]
    assert [one.reason for one in decision.refused] == [Reason.GROUP_FULL] * 35


def test_deliveries_and_contradictions_do_not_take_the_place_of_an_answer() -> None:
    again = [{**row, "line": row["line"] + 100} for row in answers(8)[:6]]  # type: ignore[operator]
    other = [{**answers(8)[7], "line": 200, "texts": ["another"]}]
    found = bucket(answers(8), again, other)
    decision = found.decided(NOTHING, "2026-11-20", rescore=False)
    [made] = decision.to_score
    assert made.texts == tuple(f"s answer {i}" for i in (6, 5, 4, 3, 2))
    assert decision.duplicates == 6
    assert sorted(one.reason for one in decision.refused) == [Reason.CONFLICT] * 2 + [Reason.GROUP_FULL] * 2


def test_one_answer_that_is_left_of_a_crowded_set_is_asked_again_and_not_scored() -> None:
    contradicting = [{**row, "line": 50, "texts": ["another"]} for row in answers(8)[1:]]
    found = bucket(answers(8, prompt="[]"), contradicting)
    [made] = found.decided(NOTHING, "2026-11-20", rescore=False).to_score
    assert (made.texts, made.reason) == ((), Reason.TOO_FEW)
