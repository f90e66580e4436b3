"""The formulas, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from sgpu.plan.cells import PlanCell, PlanModel, Sizes
from sgpu.plan.estimate import (
    cpu_seconds,
    decode_tokens_per_s,
    distinct_answers,
    judge_prompt_tokens,
    prefill_tokens_per_s,
    prompt_tokens,
    reading_seconds,
    text_seconds,
)
from sgpu.plan.rates import load_rates

RATES = load_rates()


def cell(**changes: object) -> PlanCell:
    model = PlanModel(name="m", parameters=8.29, image_rule="qwen2.5-vl")
    facts = {"model": model, "dataset": "d", "requested": None, "granted": Sizes(60, 40), "n": 20}
    return PlanCell(**{**facts, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("parameters", "expected"), [(8.0, 24_725), (32.5, 6_086), (70.6, 2_802)])
def test_reading_costs_two_operations_a_parameter(parameters: float, expected: float) -> None:
    # 989e12 x 0.4 / (2 x 8e9) = 24,725
    assert prefill_tokens_per_s(parameters, 989e12, 0.4) == pytest.approx(expected, rel=1e-3)


def test_the_decoding_rate_gives_10_000_at_8b_and_18_000_at_3b() -> None:
    # (8 / 3.6) ** 0.74 = 1.806
    assert decode_tokens_per_s(8.0, RATES) == 10_000
    assert decode_tokens_per_s(3.6, RATES) == pytest.approx(18_060, rel=1e-3)


def test_a_prompt_is_question_wording_template_and_image() -> None:
    # 20 + 12.5 + 20 + 391
    assert prompt_tokens(cell(wording_tokens=12.5, image=(640, 480)), RATES) == 443.5


def test_reading_adds_the_vision_tower_to_the_language_model() -> None:
    # Language model: 100 x 431 tokens x 2 x 7.61e9 = 6.560e14 operations; tower: 100 x 1564 patches x
    # 2 x 0.68e9 = 2.127e14; together 8.687e14 operations at 3.956e14 a second.
    assert reading_seconds(cell(image=(640, 480)), 0, RATES, 0.4) == pytest.approx(2.196, rel=1e-3)


def test_stored_answers_are_read_behind_a_prompt_that_is_read_once() -> None:
    # 100 questions x (40 + 20 x 12) tokens x 2 x 8e9 = 4.48e14 operations at 2.967e14 a second.
    text = cell(model=PlanModel(name="m", parameters=8.0))
    assert reading_seconds(text, 20, RATES, 0.3) == pytest.approx(1.510, rel=1e-3)


def test_a_judge_prompt_of_a_short_answer_has_150_tokens() -> None:
    # 100 + 18 + 20 + 12
    assert judge_prompt_tokens(cell(), RATES) == 150
    assert judge_prompt_tokens(cell(), RATES, guarded=True) == 200


def test_seven_of_twenty_answers_are_distinct() -> None:
    assert distinct_answers(cell(), RATES) == pytest.approx(7)
    assert distinct_answers(cell(n=2), RATES) == 1  # 0.7 would be less than one


def test_a_cpu_is_scaled_by_parameters_and_cores() -> None:
    # (1000 / 1000 + 894 / 447) s x twice the parameters x half the time on four cores
    assert cpu_seconds(0.27, 1000, 894, RATES, 4) == pytest.approx(3.0)


def test_large_encoders_have_a_rate_of_their_own() -> None:
    assert text_seconds(6_000, 384, RATES, False, 2) == 1
    assert text_seconds(6_000, 1024, RATES, False, 2) == 10
    assert text_seconds(6_000, 384, RATES, True, 4) == 20
