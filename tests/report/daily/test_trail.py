"""The days as lines: a day without a run is no point, and breaks the line."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np

from sgpu.report.daily.charts import lines, tabulate_trends, trail_figure
from sgpu.watch.history import PastDay, PastDays
from tests.report.daily.made_days import TODAY, past_days, summary
from tests.watch.made_scores import sketch


def made(trail: PastDays) -> tuple[PastDay, PastDays]:
    return PastDay.of(summary(TODAY, sketch(700, 1), trail)), trail


def test_values_are_those_of_the_days_and_gaps_are_none() -> None:
    today, trail = made(past_days(5, gaps=(2, 3)))
    line = lines(today, trail.days, 5)[0]
    assert line.days[0] == TODAY - timedelta(days=5) and line.days[-1] == TODAY
    assert line.values == (445.0, 436.0, None, None, 409.0, 700.0)
    assert line.levels == ("grey", "grey", None, None, "grey", "grey")


def test_means_and_shares_are_those_of_all_rows() -> None:
    today, trail = made(past_days(2, routes=("a", "b")))
    named = {line.name: line.values for line in lines(today, trail.days, 2)}
    whole = trail.days[0].sketch.total()
    assert named["probability"][0] is not None and named["unsafe"][0] is not None
    assert abs(named["probability"][0] - (whole.mean_probability or 0)) < 1e-12
    assert named["unsafe"][0] == whole.unsafe_share
    assert named["psi"][0] is None  # nothing to compare with yet


def test_a_gap_is_a_gap_in_the_drawn_line() -> None:
    today, trail = made(past_days(5, gaps=(2, 3)))
    (drawn,) = trail_figure(lines(today, trail.days, 5)[0]).axes[0].lines
    heights = np.asarray(drawn.get_ydata(), dtype=float)
    assert np.isnan(heights).tolist() == [False, False, True, True, False, False]


def test_every_judged_day_has_one_mark_and_today_the_largest() -> None:
    today, trail = made(past_days(4, gaps=(1,)))
    marks = [
        c for c in trail_figure(lines(today, trail.days, 4)[0]).axes[0].collections if len(c.get_offsets())
    ]
    sizes = np.concatenate([mark.get_sizes() for mark in marks if len(mark.get_sizes())])
    places = np.concatenate([np.asarray(mark.get_offsets())[:, 0] for mark in marks])
    known = [place for mark in marks for place, y in np.asarray(mark.get_offsets()) if np.isfinite(y)]
    assert sorted(known) == [-4, -3, -2, 0]
    assert places[np.argmax(sizes)] == 0


def test_the_table_is_newest_first_with_dashes_for_days_without_a_run() -> None:
    today, trail = made(past_days(3, gaps=(1,)))
    rows = tabulate_trends(lines(today, trail.days, 3))
    assert [day for day, _, _ in rows][:2] == [TODAY, date(2026, 11, 19)]
    assert rows[1][1] is None and set(rows[1][2]) == {"–"}
    assert rows[0][2][0] == "700"
