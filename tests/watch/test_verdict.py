"""What turns a day yellow or red, and what does not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sgpu.fitted.profile import AcceptanceRule, TrainingProfile
from sgpu.logs.accounting import Accounting
from sgpu.watch.comparisons import (
    ACCEPTED_ERRORS,
    KS,
    MEAN,
    MMD,
    POOLED_MEAN,
    PSI,
    SIZES,
    UNSAFE,
    PastWindows,
)
from sgpu.watch.sketch import OTHER, Sketch, folded, merge, sketch_of
from sgpu.watch.thresholds import ChangeBounds, Levels, Thresholds
from sgpu.watch.verdict import Finding, Verdict, judge_day, worst
from tests.watch.made_scores import made_spectrum, scores, sketch, without_spectra

ALL = Accounting(rows_in=1000, scored_rows=1000, requests_scored=1000)
DAYS = 7
ALWAYS, NEVER = Levels(yellow=0.0, red=99.0), Levels(yellow=99.0, red=99.0)


@pytest.fixture(scope="module")
def history() -> list[Sketch]:
    return [sketch(600, 100 + day) for day in range(DAYS)]


@pytest.fixture(scope="module")
def profile() -> TrainingProfile:
    draw = np.random.default_rng(0)
    spectra = [np.array(made_spectrum(draw, 20, 0.1)) for _ in range(1500)]
    held_out = 1 / (1 + np.exp(-draw.normal(0.5, 1.0, 1500)))
    return TrainingProfile.of(spectra, np.ones(1500), held_out, np.ones(1500), seed=0)


def judged(
    today: Sketch, history: list[Sketch], training: TrainingProfile | None = None, **more: Any
) -> Verdict:
    return judge_day(today, history, training, more.pop("accounting", ALL), Thresholds(**more))


def found(verdict: Verdict, measure: str, reference: str = "history", **where: Any) -> Finding:
    (one,) = [
        finding
        for finding in verdict.findings
        if (finding.measure, finding.reference) == (measure, reference)
        and all(getattr(finding, name) == value for name, value in where.items())
    ]
    return one


def test_a_day_like_the_others_is_green(history: list[Sketch], profile: TrainingProfile) -> None:
    verdict = judged(sketch(800, 1), history, profile)
    assert verdict.level == "green" and verdict.exit_code == 0
    tested = {(finding.measure, finding.reference) for finding in verdict.findings if finding.tested}
    assert tested == {(m, "history") for m in (PSI, KS, MMD, SIZES, UNSAFE)} | {
        (m, "training") for m in (PSI, KS, MMD, SIZES)
    }


def test_tests_that_could_not_be_made_are_counted(history: list[Sketch], profile: TrainingProfile) -> None:
    assert judged(sketch(800, 1), history, profile).n_tests == (9, 9)
    # Of the probabilities and spectra of too few rows only the means are compared.
    assert judged(sketch(100, 1), history, profile).n_tests == (2, 11)


def test_probabilities_that_moved_are_red_and_spectra_that_did_not_are_green(history: list[Sketch]) -> None:
    verdict = judged(sketch(800, 1, shift=-1.0), history)
    assert verdict.level == "red" and verdict.exit_code == 5
    assert [found(verdict, measure).level for measure in (PSI, KS, MMD)] == ["red", "red", "green"]
    psi = found(verdict, PSI)
    assert psi.effect is not None and psi.effect > 0.5
    assert psi.p is not None and psi.p_adjusted is not None and psi.p < psi.p_adjusted < 1e-6


def test_spectra_that_moved_are_found_where_probabilities_did_not(history: list[Sketch]) -> None:
    verdict = judged(sketch(800, 1, disagreement=0.3), history)
    assert [found(verdict, measure).level for measure in (PSI, KS, MMD)] == ["green", "green", "red"]


def test_a_middling_move_is_yellow(history: list[Sketch]) -> None:
    verdict = judged(sketch(2000, 1, shift=0.4), history)
    assert verdict.level == "yellow" and verdict.exit_code == 4
    assert found(verdict, PSI).level == "yellow"


def test_a_significant_but_small_move_stays_green() -> None:
    past = [sketch(6000, 100 + day) for day in range(DAYS)]
    verdict = judged(sketch(6000, 1, shift=0.12), past)
    psi = found(verdict, PSI)
    assert psi.p_adjusted is not None and psi.p_adjusted < 0.01
    assert psi.effect is not None and psi.effect < 0.1
    assert verdict.level == "green"


def test_a_large_but_insignificant_move_stays_green() -> None:
    past = [sketch(40, 100 + day) for day in range(DAYS)]
    eager = {"min_rows": 20, "alpha": 1e-9}
    verdict = judged(sketch(40, 1, shift=0.5), past, **eager)
    effect = found(verdict, PSI).effect
    assert effect is not None and effect > 0.25
    assert verdict.level == "green"


def test_only_the_route_that_moved_is_named(history: list[Sketch]) -> None:
    past = [sketch(1500, 100 + day, routes=("a", "b", "c")) for day in range(DAYS)]
    still = scores(1500, 1, routes=("a", "b"))
    today = merge([sketch_of(still), sketch(500, 2, routes=("c",), shift=-1.2)])
    verdict = judged(today, past)
    assert found(verdict, PSI, route="c").level == "red"
    assert {found(verdict, PSI, route=route).level for route in ("a", "b")} == {"green"}
    assert found(verdict, PSI, everything=True).rows == 2000


def test_other_numbers_of_answers_are_a_finding_of_their_own(history: list[Sketch]) -> None:
    verdict = judged(sketch(800, 1, sizes=(5,)), history)
    assert found(verdict, SIZES).level == "red"


def test_more_unsafe_rows_are_red_and_fewer_are_not(history: list[Sketch]) -> None:
    def with_unsafe(share: float) -> Sketch:
        rows = scores(800, 1)
        flags = np.arange(800) < share * 800
        place = rows.column_names.index("unsafe")
        return sketch_of(rows.set_column(place, "unsafe", [flags.tolist()]))

    assert found(judged(with_unsafe(0.4), history), UNSAFE).level == "red"
    assert found(judged(with_unsafe(0.0), history), UNSAFE).level == "green"


def test_training_is_compared_where_there_is_no_history(profile: TrainingProfile) -> None:
    verdict = judged(sketch(800, 1, shift=2.5), [], profile)
    assert found(verdict, PSI, "training").level == "red"
    untested = found(verdict, PSI)
    assert not untested.tested and "0 past days with this model" in untested.text
    assert "7 are needed" in untested.text


def test_few_rows_are_not_tested_and_say_so(history: list[Sketch]) -> None:
    verdict = judged(sketch(18, 1, shift=-2), history, volume_drop=NEVER)
    psi, mean = found(verdict, PSI), found(verdict, MEAN)
    assert verdict.level == "grey" and verdict.exit_code == 0
    assert psi.level == mean.level == "grey" and not psi.tested and not mean.tested
    assert "18 rows against 4200, 200 are needed" in psi.text
    assert "18 rows against 4200, 20 are needed" in mean.text


def test_too_few_rows_for_whole_distributions_are_tested_on_their_mean(history: list[Sketch]) -> None:
    verdict = judged(sketch(180, 1, shift=-2), history)
    assert not found(verdict, PSI).tested and found(verdict, MEAN).level == verdict.level == "red"
    assert judged(sketch(180, 1), history).level == "green"


def test_enough_rows_are_not_tested_on_their_mean_as_well(history: list[Sketch]) -> None:
    assert MEAN not in {finding.measure for finding in judged(sketch(200, 1), history).findings}


def test_the_first_days_are_grey_unless_the_training_can_be_compared_with(profile: TrainingProfile) -> None:
    past = [sketch(600, 100 + day) for day in range(5)]
    assert judged(sketch(800, 1, shift=-2), past).level == "grey"
    assert judged(sketch(800, 1), past, profile).level == "green"


def test_a_training_profile_of_156_rows_is_compared_with_by_its_mean() -> None:
    draw = np.random.default_rng(0)
    spectra = [np.array(made_spectrum(draw, 20, 0.1)) for _ in range(183)]
    held_out = 1 / (1 + np.exp(-draw.normal(0.5, 1.0, 156)))
    small = TrainingProfile.of(spectra, np.ones(183), held_out, np.ones(156), seed=0)
    moved = judged(sketch(1000, 1, shift=-2), [], small)
    assert found(moved, MEAN, "training").level == moved.level == "red"
    assert judged(sketch(1000, 1), [], small).level == "green"
    # A route of harder questions is no drift from the training, which has no routes.
    routes = merge([sketch(1000, 1), sketch(100, 2, routes=("hard",), shift=-2)])
    assert judged(routes, [], small).level == "green"


def test_a_route_with_few_rows_a_day_is_tested_over_several_days() -> None:
    routes = ("busy",) * 60 + ("rare",)
    before = [sketch(600, 100 + day, routes=routes) for day in range(28)]
    rare = [sketch(10, 200 + day, routes=("rare",), shift=-1.5) for day in range(7)]
    recent = [merge([sketch(600, 300 + day, routes=("busy",)), rare[day]]) for day in range(6)]
    today = merge([sketch(600, 1, routes=("busy",)), rare[6]])
    pool = PastWindows(recent, before)
    verdict = judge_day(today, [*before[6:], *recent], None, ALL, Thresholds(), pool=pool)
    pooled = found(verdict, POOLED_MEAN, route="rare")
    assert pooled.rows == 70 and pooled.level == verdict.level == "red"
    assert not found(verdict, MEAN, route="rare").tested
    still = judge_day(today, [*before[6:], *recent], None, ALL, Thresholds())
    assert still.level == "green" and POOLED_MEAN not in {finding.measure for finding in still.findings}


def test_days_of_another_scorer_are_not_pooled_with_today() -> None:
    before = [sketch(10, 100 + day) for day in range(28)]
    recent = [sketch(10, 200 + day, scorer="s0", shift=-3) for day in range(6)]
    verdict = judge_day(sketch(25, 1), [], None, ALL, Thresholds(), pool=PastWindows(recent, before))
    assert found(verdict, POOLED_MEAN).rows == 25 and found(verdict, POOLED_MEAN).level == "green"


def test_33_invented_routes_hide_no_route_that_the_past_has_seen() -> None:
    invented = tuple(f"invented-{i}" for i in range(40))
    past = [sketch(600, 100 + day, routes=("billing", "search")) for day in range(DAYS)]
    moved = sketch(60, 2, routes=("billing",), shift=-2)
    today = folded(merge([moved, sketch(300, 1, routes=("search",)), sketch(4000, 3, routes=invented)]), past)
    assert len(today.groups) == 32 and today.groups["m", "billing"].rows == 60
    verdict = judged(today, past)
    assert found(verdict, MEAN, route="billing").level == "red"
    assert found(verdict, PSI, route="search").level == "green"


def test_a_new_route_has_nothing_to_be_compared_with(history: list[Sketch]) -> None:
    today = merge([sketch(500, 1), sketch(500, 2, routes=("new",), shift=-2)])
    one = found(judged(today, history), PSI, route="new")
    assert not one.tested and "500 rows against 0" in one.text


def test_probabilities_of_another_scorer_are_not_compared_but_spectra_are() -> None:
    past = [sketch(600, 100 + day, scorer="old", shift=-2) for day in range(DAYS)]
    verdict = judged(sketch(800, 1, scorer="new"), past)
    assert not found(verdict, PSI).tested and not found(verdict, UNSAFE).tested
    assert found(verdict, MMD).tested and verdict.level == "green"


def test_nothing_is_compared_with_days_of_another_encoder() -> None:
    past = [sketch(600, 100 + day, scorer="old", encoder="old", disagreement=1.0) for day in range(DAYS)]
    verdict = judged(sketch(800, 1, scorer="new", encoder="new"), past)
    assert not any(finding.tested for finding in verdict.findings)


def test_routes_that_today_gathers_are_gathered_in_the_past() -> None:
    routes = tuple(f"user-{i}" for i in range(40))
    past = [sketch(2000, 100 + day, routes=routes) for day in range(DAYS)]
    today = folded(sketch(2000, 1, routes=routes), past)
    assert len(today.groups) == 32 and today.groups["m", OTHER].rows > 300
    other = found(judged(today, past), PSI, route=OTHER)
    assert other.level == "green" and other.tested
    gathered = [sum(day.groups["m", route].rows for day in past) for route in routes]
    assert other.reference_rows == sum(sorted(gathered)[:9])


@pytest.mark.parametrize(("wrong", "level"), [(30, "green"), (52, "yellow"), (80, "red")])
def test_accepted_answers_that_break_the_models_promise_are_called_out(
    profile: TrainingProfile, wrong: int, level: str
) -> None:
    rule = AcceptanceRule(alpha=0.05, delta=0.05, cut=0.6, n_calibration=500)
    whole = sketch(800, 1).total()
    whole.counts.update({"accepted_labelled": 600, "accepted_wrong": wrong})
    today = replace(sketch(800, 1), groups={("m", "r"): whole})
    one = found(judged(today, [], replace(profile, rule=rule)), ACCEPTED_ERRORS, "rule")
    assert one.level == level
    assert one.effect == pytest.approx(wrong / 600 - 0.05)


def test_a_rule_without_labels_is_not_tested(profile: TrainingProfile) -> None:
    rule = AcceptanceRule(alpha=0.05, delta=0.05, cut=0.6, n_calibration=500)
    one = found(judged(sketch(800, 1), [], replace(profile, rule=rule)), ACCEPTED_ERRORS, "rule")
    assert not one.tested and "0 accepted answers with a label" in one.text


@pytest.mark.parametrize(
    ("rows", "level"), [(600, "green"), (200, "green"), (140, "yellow"), (25, "red"), (5000, "green")]
)
def test_a_day_with_far_fewer_scores_is_called_out(history: list[Sketch], rows: int, level: str) -> None:
    (volume,) = [f for f in judged(sketch(rows, 1), history).findings if f.measure == "volume"]
    assert volume.level == level


def test_a_day_without_scores_is_red() -> None:
    nothing = judge_day(Sketch(), [], None, Accounting(), Thresholds())
    assert nothing.level == "red" and "no row was logged" in nothing.findings[0].text
    unusable = Accounting(rows_in=3, quarantined=3, by_reason={"refusal": 3})
    unscored = judge_day(Sketch(), [], None, unusable, Thresholds())
    assert "no request could be scored" in unscored.findings[0].text


def test_a_scoreable_share_that_fell_is_called_out(history: list[Sketch]) -> None:
    def share(scored: int) -> Accounting:
        bad = 100 - scored
        return Accounting(rows_in=100, scored_rows=scored, quarantined=bad, by_reason={"refusal": bad})

    def level(scored: int, **thresholds: Any) -> str:
        made = Thresholds(**thresholds)
        verdict = judge_day(sketch(800, 1), history, None, share(scored), made, [share(90)] * DAYS)
        return worst(f.level for f in verdict.findings if f.measure == "scoreable")

    assert [level(scored) for scored in (95, 85, 75, 55)] == ["green", "green", "yellow", "red"]
    assert level(95, least_scoreable=0.99) == "red"


def one_fall(scored: int, usual: int) -> Finding:
    def share(scored: int) -> Accounting:
        bad = 1000 - scored
        return Accounting(rows_in=1000, scored_rows=scored, quarantined=bad, by_reason={"refusal": bad})

    verdict = judge_day(sketch(300, 1), [], None, share(scored), Thresholds(), [share(usual)] * DAYS)
    (one,) = [f for f in verdict.findings if f.measure == "scoreable"]
    return one


def test_a_small_scoreable_share_that_fell_by_half_is_red_and_the_text_says_by_how_much_of_the_median() -> (
    None
):
    fallen = one_fall(scored=40, usual=80)
    assert (fallen.level, fallen.effect) == ("red", pytest.approx(0.5))
    assert "50.0 % below the median" in fallen.text


def test_nothing_can_fall_below_a_median_of_nothing() -> None:
    fallen = one_fall(scored=0, usual=0)
    assert (fallen.level, fallen.effect) == ("grey", None)
    assert "median of the past days is 0" in fallen.text


def test_a_file_that_could_not_be_read_whole_is_yellow(history: list[Sketch]) -> None:
    faulty = replace(ALL, file_faults={"file_truncated": 1}, files=9)
    verdict = judged(sketch(800, 1), history, accounting=faulty)
    assert verdict.level == "yellow"
    assert "1 file truncated" in next(f.text for f in verdict.findings if f.measure == "files")


def test_the_same_day_is_judged_the_same_and_another_seed_moves_only_permutations(
    history: list[Sketch], profile: TrainingProfile
) -> None:
    today = sketch(800, 1, disagreement=0.13, routes=("a", "b"))
    one, same = (judged(today, history, profile).to_json() for _ in range(2))
    assert one == same
    other = judged(today, history, profile, seed=1)
    ps = [[f.p for f in v.findings if f.measure == PSI] for v in (Verdict.from_json(one), other)]
    assert ps[0] == ps[1]


def test_pure_noise_is_called_out_about_as_often_as_alpha_says() -> None:
    """Without a bound on the effect, so that the tests alone decide; with it hardly a day would be."""
    alpha, days = 0.2, 150
    past = [sketch(1200, 1000 + day, routes=("a", "b")) for day in range(28)]
    bounds = ChangeBounds(psi=ALWAYS, ks=ALWAYS, mmd=ALWAYS, sizes=ALWAYS, unsafe=ALWAYS)
    eager = Thresholds(alpha=alpha, history=bounds, mmd_rows=100, scoreable_drop=ALWAYS, volume_drop=ALWAYS)
    plain = Thresholds(volume_drop=NEVER)
    alarms = strict = 0
    for day in range(days):
        today = sketch(600, day, routes=("a", "b"))
        verdict = judge_day(today, past, None, ALL, eager)
        alarms += any(finding.tested and finding.level != "green" for finding in verdict.findings)
        if day < 28:
            strict += judge_day(today, past, None, ALL, plain).level != "green"
            strict += judge_day(sketch(60, day, routes=("a", "b")), past, None, ALL, plain).level != "green"
    rate, error = alarms / days, math.sqrt(alpha * (1 - alpha) / days)
    assert rate <= alpha + 3 * error
    # The tests are related, so Holm's bound is not reached; far below it the tests would see nothing.
    assert rate >= alpha / 4
    assert strict == 0


def test_a_day_without_spectra_is_compared_by_its_probabilities() -> None:
    today = sketch_of(without_spectra(scores(300, 1), 300))
    days = [sketch(300, 10 + day) for day in range(DAYS)]
    verdict = judge_day(today, days, None, ALL, Thresholds())
    found = {finding.measure: finding for finding in verdict.findings}
    assert found[PSI].tested and found[KS].tested and found[SIZES].tested
    assert "not tested, 0 rows against 1024" in found[MMD].text
