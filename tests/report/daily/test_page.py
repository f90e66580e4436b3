"""The page of a day: it says what happened, escapes what it shows, and needs nothing from outside."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from sgpu.errors import DataError
from sgpu.logs.accounting import Accounting
from sgpu.report.daily.page import daily_page
from sgpu.watch.history import PastDay, PastDays
from sgpu.watch.sketch import OTHER, Sketch, folded, merge
from tests.contracts.page_contract import Page, PageContract
from tests.report.daily.made_days import TODAY, accounting, past_days, profile, summary
from tests.watch.made_scores import sketch

BAD = "<script>alert(1)</script>"
ROUTES: dict[str, Any] = {"routes": ("bot", BAD), "models": ("gpt", BAD)}


@pytest.fixture(scope="module")
def trail() -> PastDays:
    return past_days(12, gaps=(3, 4, 9), labelled=0.3, challenger_noise=0.7, **ROUTES)


@pytest.fixture(scope="module")
def red(trail: PastDays) -> Page:
    today = sketch(1600, 1, shift=-1.5, labelled=0.3, challenger_noise=0.7, cut=0.6, **ROUTES)
    content = summary(
        TODAY,
        today,
        trail,
        profile(),
        replace(accounting(1600), file_faults={"file_truncated": 2}),
        settings={
            "logs": BAD,
            "tracking": "https://joe:secret@mlflow.example/x",
            "max_bad": 0.001,
            "max_bad_files": 0.01,
        },
        quarantine={"refusal": [{"file": f"{BAD}.jsonl", "line": 7, "detail": f"{BAD} \u202e"}]},
        code_version=BAD,
    )
    return Page(daily_page(content, trail))


@pytest.fixture(scope="module")
def first() -> Page:
    return Page(daily_page(summary(TODAY, sketch(300, 1)), PastDays()))


class TestPage(PageContract):
    @pytest.fixture
    def source(self, red: Page) -> str:
        return red.source


def test_names_and_details_stand_as_text(red: Page) -> None:
    assert BAD not in red.source and red.text.count(BAD) >= 8


def test_marks_of_direction_are_shown_instead_of_working(red: Page) -> None:
    assert "\u202e" not in red.source and "⟨U+202E⟩" in red.text


def test_passwords_of_addresses_are_left_out(red: Page) -> None:
    assert "secret" not in red.source and "joe" not in red.source
    assert "https://mlflow.example/x" in red.text


def test_a_red_day_says_red_and_why(red: Page) -> None:
    assert "Red look before these scores are used" in red.text
    assert re.search(r"all rows, against past days: Probabilities, PSI \d\.\d+ \(red from 0\.250\)", red.text)
    assert "Files that could not be read whole: 2 file truncated" in red.text


@pytest.mark.parametrize(
    ("change", "word", "shape"),
    [
        ({}, "Green no finding in the 9 of 29 tests that could be made", "<circle"),
        ({"file_faults": {"file_missing": 1}}, "Yellow worth a look; 9 of 29 tests could be made", "<path"),
    ],
)
def test_other_levels_have_their_own_word_and_shape(
    trail: PastDays, change: dict[str, Any], word: str, shape: str
) -> None:
    content = summary(TODAY, sketch(450, 1, **ROUTES), trail, account=replace(accounting(450), **change))
    page = Page(daily_page(content, trail))
    assert word in page.text
    banner = page.source[page.source.index('class="banner') :]
    assert shape in banner[: banner.index("</p>")]


def test_every_test_stands_with_statistic_effect_p_values_and_bounds(red: Page, trail: PastDays) -> None:
    assert "What, against what Effect Yellow, red from Statistic p p adjusted Rows" in red.text
    bounds, adjusted = r"0\.100, 0\.250", r"< 0\.001 < 0\.001"
    assert re.search(
        rf"all rows Red Probabilities, PSI against past days \S+ {bounds} \S+ {adjusted} 1 600", red.text
    )
    assert "Spectra, MMD against training" in red.text


def test_what_was_not_tested_says_why(first: Page) -> None:
    assert "5 tests not possible" in first.text
    assert "0 past days with this model and 0 with this encoder, 7 are needed" in first.text
    moved = merge([sketch(500, 1), sketch(60, 2, routes=("r2",), shift=-2)])
    past = past_days(8, routes=("r", "r2"))
    assert re.search(
        r"Mean probability, shift −0\.\d+ \(red from 0\.100\)",
        Page(daily_page(summary(TODAY, moved, past), past)).text,
    )


def test_the_classes_of_rows_are_listed_and_add_up(first: Page) -> None:
    account = accounting(300)
    for title, count in (
        ("Scored now", account.scored_rows),
        ("Scored before", account.already),
        ("Quarantined", account.quarantined),
        ("Duplicates", account.duplicates),
        ("No answer by design", account.no_answer),
        ("All rows", account.rows_in),
    ):
        assert f"{title} {count}" in first.text
    assert "the classes add up to all rows" in first.text


def test_rows_that_were_lost_are_called_so() -> None:
    account = replace(accounting(300), rows_in=400)
    text = Page(daily_page(summary(TODAY, sketch(300, 1), account=account), PastDays())).text
    assert "70 lost" in text and "the classes add up to all rows" not in text


def test_quarantine_names_reason_file_and_line(red: Page) -> None:
    assert re.search(rf"refusal 19 {re.escape(BAD)}\.jsonl, line 7", red.text)
    assert "file truncated 0 2 as a whole file" in red.text


def test_more_in_quarantine_than_allowed_is_said(red: Page, first: Page) -> None:
    assert "Too many rows are faulty: 0.2 % of the requests, above --max-bad (0.1 %)" in red.text
    assert (
        "Too many files are faulty: 22.2 % of those that are logs, above --max-bad-files (1.0 %)" in red.text
    )
    assert "faulty" not in first.text


def test_probabilities_are_drawn_against_past_days_and_training(red: Page, first: Page) -> None:
    assert "today (1 600 rows)" in red.text
    assert "past days of this model" in red.text and "held-out rows of its training (900 rows)" in red.text
    assert "held-out" not in first.text


def test_champion_and_challenger_are_compared_where_labels_are(red: Page, first: Page) -> None:
    assert "Champion minus challenger" in red.text and "Today and 9 past days" in red.text
    assert re.search(r"Champion \d+ 0\.\d{3} 0\.\d{3} \[0\.\d{3}, 0\.\d{3}\]", red.text)
    assert "No scored row has a label yet" in first.text


def test_labels_without_a_challenger_show_the_champion_alone() -> None:
    text = Page(daily_page(summary(TODAY, sketch(300, 1, labelled=1.0)), PastDays())).text
    assert re.search(r"no challenger judged these rows 300 0\.\d{3} 0\.\d{3}", text)


def test_days_without_a_run_stay_empty(trail: PastDays, red: Page) -> None:
    assert "9 of the 28 days before have a run" in red.text
    assert red.text.count("no run") == 28 - 9 + 1  # and once in the legend
    assert re.search(r"2026-11-17 no run – – – – – – 2026-11-16 no run", red.text)
    assert re.search(r"2026-11-18 Green 418 9\d\.\d % ", red.text)


def test_past_days_of_another_model_are_counted_and_not_compared(trail: PastDays) -> None:
    text = Page(daily_page(summary(TODAY, sketch(300, 1, scorer="new")), trail)).text
    assert "9 past days were scored by another model" in text
    assert "no past days of this model" in text


def test_a_day_that_could_not_be_read_is_named() -> None:
    text = Page(daily_page(summary(TODAY, sketch(300, 1)), PastDays((), ("2026-11-19: DataError",)))).text
    assert "A past day could not be read and is left out: 2026-11-19: DataError" in text


def test_routes_that_were_gathered_are_said_to_be() -> None:
    many = folded(sketch(200, 1, routes=tuple(f"user-{i}" for i in range(50))))
    text = Page(daily_page(summary(TODAY, many), PastDays())).text
    assert "m has more than 32 routes: the largest by the past days are shown separately" in text
    assert OTHER in text


def test_a_day_and_a_route_that_could_not_be_tested_are_grey_and_say_what_is_missing(trail: PastDays) -> None:
    first = Page(daily_page(summary(TODAY, sketch(300, 1)), PastDays()))
    assert "Not tested" in first.text and 'class="banner level grey"' in first.source
    assert "all rows" not in first.text.split("Why")[0]
    assert "0 past days with this model and 0 with this encoder, 7 are needed" in first.text
    moved = merge([sketch(500, 1), sketch(60, 2, routes=("r2",), shift=-2)])
    past = past_days(8, routes=("r", "r2"))
    assert re.search(
        r"Mean probability, shift −0\.\d+ \(red from 0\.100\)",
        Page(daily_page(summary(TODAY, moved, past), past)).text,
    )
    tiny = merge([sketch(500, 1), sketch(12, 2, routes=("new",))])
    page = Page(daily_page(summary(TODAY, tiny, trail), trail)).source
    row = page[page.index('<span class="sub">new</span>') :]
    assert row[: row.index("</tr>")].count('class="level grey"') == 1


def test_a_day_without_anything_is_still_a_page(trail: PastDays) -> None:
    text = Page(daily_page(summary(TODAY, Sketch(), trail, account=Accounting()), trail)).text
    assert "No row was logged on this day." in text and "No request of this day has a score." in text
    assert "scored by another model" not in text


def test_a_day_that_was_not_judged_has_no_colour() -> None:
    page = Page(daily_page(summary(TODAY, sketch(300, 1), verdict=None), PastDays()))
    assert "This day has no verdict." in page.text and 'class="banner' not in page.source


def test_the_same_summaries_give_the_same_bytes(trail: PastDays) -> None:
    content = summary(TODAY, sketch(500, 1, labelled=0.5, challenger_noise=1.0, **ROUTES), trail)
    again = PastDays(tuple(PastDay(d.day, d.sketch, d.accounting, d.verdict) for d in trail.days))
    assert daily_page(content, trail) == daily_page(json.loads(json.dumps(content)), again)


def test_a_training_histogram_of_other_bins_is_a_data_error() -> None:
    content = summary(TODAY, sketch(30, 1), training=profile())
    content["training"]["histogram"] = [1, 2]
    with pytest.raises(DataError, match="50 counts"):
        daily_page(content, PastDays())
