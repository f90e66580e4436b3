from __future__ import annotations

import json

import pytest

from sgpu.errors import DataError, StageError
from sgpu.logs.accounting import Accounting

DAY = Accounting(
    rows_in=20, scored_rows=8, quarantined=4, duplicates=2, already=2, other_day=1, no_answer=2, prompts=1,
    requests_scored=6, files=2, by_reason={"refusal": 3, "not_json": 1},
)  # fmt: skip


def test_rows_that_add_up_pass() -> None:
    DAY.check()


@pytest.mark.parametrize("change", [{"rows_in": 21}, {"scored_rows": 9}, {"by_reason": {"refusal": 3}}])
def test_a_row_lost_or_counted_twice_stops_the_run(change: dict[str, int]) -> None:
    with pytest.raises(StageError, match="accounted for"):
        (Accounting.from_json({**DAY.to_json(), **change})).check()


def test_the_sum_of_two_parts_adds_every_count() -> None:
    both = DAY + Accounting(
        rows_in=1, quarantined=1, by_reason={"refusal": 1}, file_faults={"file_missing": 1}
    )
    assert (both.rows_in, both.quarantined, both.by_reason["refusal"]) == (21, 5, 4)
    assert both.file_faults == {"file_missing": 1}
    both.check()


def test_faulty_rows_and_faulty_files_are_two_shares() -> None:
    faulty = DAY + Accounting(file_faults={"file_missing": 1})
    assert faulty.bad_share == DAY.bad_share == 1 / 16  # of 16 rows that hold a request of the day
    assert (faulty.bad_file_share, DAY.bad_file_share) == (1 / 2, 0.0)
    assert Accounting().bad_share == Accounting().bad_file_share == 0.0


def test_a_file_that_is_not_a_log_is_neither_faulty_nor_one_of_the_files() -> None:
    stray = DAY + Accounting(file_faults={"not_a_log": 1})
    assert stray.bad_file_share == 0.0
    assert (stray + Accounting(file_faults={"file_missing": 1})).bad_file_share == 1.0


@pytest.mark.parametrize("reason", ["too_few_answers", "refusal", "tool_call", "content_filter", "empty"])
def test_a_sound_request_without_a_second_answer_is_no_bad_row(reason: str) -> None:
    assert Accounting(rows_in=2, quarantined=2, by_reason={reason: 2}).bad_share == 0.0
    assert Accounting(rows_in=2, quarantined=2, by_reason={reason: 1, "not_json": 1}).bad_share == 0.5


def test_the_scoreable_share_leaves_out_what_carries_no_answer() -> None:
    assert DAY.scoreable_share == (8 + 2) / (8 + 2 + 3)
    assert Accounting(rows_in=1, quarantined=1, by_reason={"not_json": 1}).scoreable_share is None


def test_it_comes_back_from_json() -> None:
    assert Accounting.from_json(json.loads(json.dumps(DAY.to_json()))) == DAY
    with pytest.raises(DataError, match="score the day again"):
        Accounting.from_json({"rows_in": 1})
