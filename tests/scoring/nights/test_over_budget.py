"""Nights with files that unpack to far more than they are: bounded, told, and never green."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sgpu.logs import budget
from sgpu.logs.accounting import Accounting
from tests.scoring.nights.nights import (
    DAY,
    model_folder,
    night,
    quarantine,
    reasons,
    rows,
    scores,
    summary,
    write,
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    model_folder(tmp_path / "model")
    write(tmp_path / "logs", "good.jsonl", rows(range(10)))
    return tmp_path


def test_rejected_rows_beyond_the_first_ten_thousand_are_one_row_with_their_number(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(b"{}\n" * 30_000 + b"[]\n" * 2_000)
    (place / "logs" / f"dt={DAY}" / "bad.jsonl.gz").write_bytes(packed)
    monkeypatch.setattr(budget, "LEAST_REJECTED", 1)
    result = night(place)
    assert reasons(place) == {"unknown_format": 10_001} and result.exit_code == 3
    [together] = quarantine(place).filter(quarantine(place)["detail"].str.contains("rejected rows"))["detail"]
    assert together == "22000 rejected rows of this file, of this line and after it: 22000 unknown_format"
    lines = quarantine(place)["line"].to_list()
    assert sorted(lines) == list(range(1, 10_002))
    accounting = result.accounting
    assert accounting is not None and len(scores(place)) == 10
    assert (accounting.rows_in, accounting.quarantined, accounting.together) == (32_010, 10_001, 21_999)
    assert accounting.bad_share == pytest.approx(32_000 / 32_010)


def test_a_day_of_which_not_all_was_read_is_never_green_and_says_at_least(place: Path) -> None:
    write(place / "logs", "large.jsonl", rows(range(10, 500)))
    result = night(place, file={"rows": 100})
    accounting = result.accounting
    assert accounting is not None and accounting.bytes_unread > 0
    assert accounting.scoreable == "at least 100.0%" and result.level == "yellow"
    found = quarantine(place).select("file", "line", "reason").rows()
    assert found == [(f"dt={DAY}/large.jsonl", None, "over_budget")]
    page = (place / "out" / "days" / str(DAY) / "index.html").read_text()
    assert "at least 100" in page and "bytes of the logs were not read" in page
    assert Accounting.from_json(summary(place)["accounting"]) == accounting
