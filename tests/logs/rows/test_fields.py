"""Fields: what passes, what is named as wrong, and that nothing escapes as another error."""

from __future__ import annotations

from typing import Any

import pytest

from sgpu.logs.records import NoAnswer, Reason, Rejected
from sgpu.logs.rows.fault import RowFault, shown
from sgpu.logs.rows.fields import checked, count_of, label_of, mapping_of, text_of


def test_an_id_may_be_a_number() -> None:
    assert text_of(17, "id") == "17"


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_blank_name_is_a_missing_one(value: Any) -> None:
    assert text_of(value, "id") is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (True, Reason.BAD_VALUE),
        (1.5, Reason.BAD_VALUE),
        ([], Reason.BAD_VALUE),
        ("x" * 513, Reason.BAD_VALUE),
        (10**600, Reason.BAD_VALUE),
        ("\udc00", Reason.ENCODING),
    ],
)
def test_a_name_that_cannot_be_stored_is_refused(value: Any, reason: Reason) -> None:
    with pytest.raises(RowFault) as caught:
        text_of(value, "id")
    assert caught.value.reason is reason


@pytest.mark.parametrize(("value", "label"), [(True, 1), (0, 0), (1.0, 1), (None, None)])
def test_labels_are_read(value: Any, label: int | None) -> None:
    assert label_of(value) == label


@pytest.mark.parametrize("value", [2, "1", 0.5, float("nan"), []])
def test_another_label_is_refused(value: Any) -> None:
    with pytest.raises(RowFault, match="label is"):
        label_of(value)


def test_counts_may_be_text_but_not_below_one() -> None:
    assert (count_of("20", "n"), count_of(3, "n"), count_of(None, "n")) == (20, 3, None)
    for value in (0, -1, 1.5, True, "x"):
        with pytest.raises(RowFault):
            count_of(value, "n")


def test_objects_are_read_from_json_text_and_from_parquet_maps() -> None:
    expected = {"route": "a"}
    for value in ({"route": "a"}, '{"route": "a"}', [("route", "a")]):
        assert mapping_of(value) == expected
    for value in (None, "a", "{", [1], 7):
        assert mapping_of(value) == {}


def test_a_shown_value_is_ascii_short_and_no_container() -> None:
    assert len(shown("ä" * 500)) == 60 and shown("ä" * 500).isascii()
    assert shown({"answer": "Paris"}) == "a dict"


def test_a_refused_row_keeps_what_can_be_stored_of_its_identity() -> None:
    def read() -> NoAnswer:
        raise RowFault(Reason.TOO_MANY, "d")

    found = checked(read, request_id="r", model={"a": 1}, route="\ud800", timestamp="2026-11-20T00:00:00Z")
    assert found == Rejected(Reason.TOO_MANY, "d", "r", None, None, 1_795_132_800_000_000)


@pytest.mark.parametrize("error", [KeyError("secret"), RecursionError(), ValueError("secret")])
def test_an_error_that_was_not_foreseen_refuses_the_row_only(error: Exception) -> None:
    def read() -> NoAnswer:
        raise error

    found = checked(read)
    assert isinstance(found, Rejected) and found.reason is Reason.BAD_VALUE
    assert "secret" not in found.detail
