"""Single answers: each becomes a record with the key of its group."""

from __future__ import annotations

from sgpu.logs.formats import ADAPTERS
from sgpu.logs.records import LogRecord, Reason, Rejected
from tests.scoring.log_fixtures import fixture_rows, items_of, texts


def test_answers_to_one_question_share_a_key_whatever_their_seed() -> None:
    records = items_of("single", *fixture_rows("single")[:3])
    assert [texts(one) for one in records] == [("4",), ("four",), ("5",)]
    keys = {one.group_key for one in records if isinstance(one, LogRecord)}
    assert len(keys) == 1 and None not in keys
    assert len({one.request_id for one in records if isinstance(one, LogRecord)}) == 3


def test_a_group_id_in_the_row_and_in_its_metadata_are_one() -> None:
    nested, own = items_of("single", *fixture_rows("single")[3:5])
    assert isinstance(nested, LogRecord) and isinstance(own, LogRecord)
    assert nested.group_key == own.group_key is not None


def test_without_question_and_group_id_there_is_no_second_answer() -> None:
    rejected, empty = items_of("single", *fixture_rows("single")[5:])
    assert isinstance(rejected, Rejected) and rejected.reason is Reason.TOO_FEW
    assert isinstance(empty, Rejected) and empty.reason is Reason.EMPTY


def test_a_row_that_asked_for_several_is_no_single_answer() -> None:
    row = {"request_id": "r", "timestamp": 1, "model": "m", "samples": [{"text": "a"}]}
    assert ADAPTERS["single"].recognises({**row, "sampling": {"n": 1}})
    assert ADAPTERS["sgpu"].recognises({**row, "sampling": {"n": 5}})
    assert not ADAPTERS["single"].recognises({**row, "sampling": {"n": 5}})
