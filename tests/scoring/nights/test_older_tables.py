"""A table that version 0.1 wrote, with a day that it did not finish, is gone on with."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.scoring.nights import nights
from tests.scoring.nights.nights import DAY, label, labelled, night, scores

DAYS = [DAY - timedelta(days=1), DAY, DAY + timedelta(days=1)]


@pytest.fixture
def older(tmp_path: Path) -> Path:
    return nights.older_table(tmp_path / "older")


def test_what_stands_in_an_older_table_is_not_scored_again_and_the_unfinished_day_is_finished(
    older: Path,
) -> None:
    before = scores(older)
    results = [night(older, day) for day in DAYS]
    assert [one.status for one in results] == ["committed"] * 3
    again = [one.accounting.scored_rows if one.accounting else -1 for one in results]
    # Of the second day what version 0.1 refused: two ids of two models each, one order turned, one that grew.
    # Of the 20 rows of the last day 4 are delivered again.
    assert again == [0, 6, 16]
    after = scores(older)
    assert after.join(before, on=before.columns, how="semi", nulls_equal=True).height == before.height
    assert after.select("model", "request_id").is_unique().all() and after.height == before.height + 22
    assert [night(older, day).status for day in DAYS] == ["unchanged"] * 3


def test_labels_of_an_older_table_count_until_newer_ones_come(older: Path) -> None:
    night(older, DAYS[0])
    assert labelled(older, DAYS[0]) == {"labelled": 8, "right": 4}
    night(older, DAYS[0], labels=nights.labels(older, label(0, 1), label(11, 1), name="new.jsonl"))
    assert labelled(older, DAYS[0]) == {"labelled": 8, "right": 5}
    assert nights.summary(older, DAYS[0])["labels"]["conflicts"] == 1


def test_labels_reach_a_day_of_which_only_an_older_run_knows(older: Path) -> None:
    from sgpu.scoring.day import score_days

    settings = nights.settings(
        older, date=DAYS[2], late_days=0, labels=nights.labels(older, label(0, 1), name="new.jsonl")
    )
    score_days(settings, scorer=nights.SCORER)
    assert labelled(older, DAYS[0]) == {"labelled": 8, "right": 5}
