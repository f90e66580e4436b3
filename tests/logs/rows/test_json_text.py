"""JSON that is refused, and what the refusal tells."""

from __future__ import annotations

import json

import pytest

from sgpu.logs.records import Reason
from sgpu.logs.rows.fault import RowFault
from sgpu.logs.rows.json_text import parsed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", Reason.NOT_JSON),
        ('{"secret": "answer"', Reason.NOT_JSON),
        ('{"a": "raw \x00 byte"}', Reason.NOT_JSON),
        ("{} {}", Reason.NOT_JSON),
        ('{"secret": 1, "secret": 2}', Reason.BAD_VALUE),
        ('{"a": [{"secret": 1, "secret": 1}]}', Reason.BAD_VALUE),
        ("[" * 100_000 + "]" * 100_000, Reason.BAD_VALUE),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, Reason.BAD_VALUE),
        ("[" + "9" * 5_000 + "]", Reason.BAD_VALUE),
    ],
)
def test_what_cannot_be_read_is_told_without_its_content(text: str, reason: Reason) -> None:
    with pytest.raises(RowFault) as caught:
        parsed(text)
    assert caught.value.reason is reason
    assert "secret" not in caught.value.detail and "answer" not in caught.value.detail


def test_the_same_key_in_two_objects_is_fine() -> None:
    text = '{"a": {"k": 1}, "b": [{"k": 2}, {"k": "\\u0000"}], "n": NaN}'
    assert repr(parsed(text)) == repr(json.loads(text))
