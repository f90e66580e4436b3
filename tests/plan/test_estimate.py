"""The work of each stage, against numbers worked out by hand and against the published estimate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sgpu.plan.cells import PlanCell, PlanJudge, PlanModel, PlanStudy, Sizes, Work
from sgpu.plan.estimate import (
    decode_tokens_per_s,
    estimate,
    prefill_tokens_per_s,
    prompt_tokens,
    reading_seconds,
)
from sgpu.plan.image_tokens import ImageCost
from sgpu.plan.rates import Rates, load_rates
from tests.plan.paper_grid import JUDGE_8B, JUDGE_70B, MODELS, paper_study

RATES = load_rates()
TEXT_MODEL = PlanModel(name="m", parameters=8.0)
VISION_MODEL = PlanModel(name="m", parameters=8.29, tower_parameters=0.68)
AS_WRITTEN = load_rates(None, ["rates.judge.distinct_share=1", "rates.judge.prefix_hits=0"])


def cell(model: PlanModel = TEXT_MODEL, **changes: object) -> PlanCell:
    facts = {"model": model, "dataset": "d", "requested": None, "granted": Sizes(60_000, 40_000), "n": 20}
    return PlanCell(**{**facts, **changes})  # type: ignore[arg-type]


def work_of(stage: str, of: PlanCell, **settings: object) -> Work:
    study = PlanStudy(name="s", cells=(of,), **settings)  # type: ignore[arg-type]
    return next(work for work in estimate(study, RATES) if work.stage == stage)


def hours(stage: str, engine: str, rates: Rates = RATES, answer_tokens: float = 12.0) -> float:
    work = estimate(paper_study(answer_tokens), rates)
    return sum(step.hours for step in work if (step.stage, step.engine) == (stage, engine))


@pytest.mark.parametrize(
    ("answering", "limit", "seconds"),
    [
        # 2e6 / 800 = 2500 s; compute 1e5 x 40 / 24725 + 2.2e7 / 10000 = 2362 s
        (cell(answer_tokens=11.0), "finished sequences", 2500),
        # 1e5 x 40 / 24725 + 1e5 x 20 x 40 / 10000 = 161.8 + 8000 s
        (cell(answer_tokens=40.0), "prefill and decode", 8161.8),
        # 1e5 / 60 = 1667 s against 2e5 / 800 = 250 s
        (cell(n=2, answer_tokens=2.0, image=ImageCost(4, 16)), "new images", 1e5 / 60),
        # All limits of an engine count all its GPUs.
        (cell(PlanModel(name="m", parameters=0.5, gpus=4)), "finished sequences", 4 * 2500),
    ],
)
def test_sampling_is_limited_by_the_slowest(answering: PlanCell, limit: str, seconds: float) -> None:
    work = work_of("sample", answering)
    assert (work.limit, work.hours) == (limit, pytest.approx(seconds / 3600, rel=1e-4))


def test_a_judge_is_asked_once_for_equal_answers_and_half_its_prompt_is_cached() -> None:
    # 4e4 questions x 7 distinct answers x 150 tokens / 2 = 2.1e7 tokens at 24725 a second
    work = work_of("judge", cell(judges=(PlanJudge(TEXT_MODEL, 40_000),)))
    assert (work.calls, work.rows) == (pytest.approx(280_000), 40_000)
    assert work.hours == pytest.approx(2.1e7 / 24725 / 3600)
    guarded = work_of("judge", cell(judges=(PlanJudge(TEXT_MODEL, 40_000, guarded=True),)))
    assert guarded.tokens_in == pytest.approx(280_000 * 200)


def test_a_rule_judges_in_no_time() -> None:
    assert work_of("judge", cell(judges=(PlanJudge(None, 40_000),))).hours == 0


def test_entailment_compares_ordered_pairs_of_distinct_answers() -> None:
    # 1e5 x 7 x 6 pairs at 4150 a second
    work = work_of("entail", cell(), entailment="deberta")
    assert (work.calls, work.hours) == (pytest.approx(4.2e6), pytest.approx(4.2e6 / 4150 / 3600))


def test_cosine_waits_for_labels_only_if_its_threshold_is_fitted() -> None:
    stages = [
        [
            work.stage
            for work in estimate(
                PlanStudy(name="s", cells=(cell(),), entailment="cosine", fits_threshold=fits), RATES
            )
        ]
        for fits in (False, True)
    ]
    assert stages == [["sample", "encode", "entail"], ["sample", "encode", "entail by cosine"]]


def test_a_hidden_pass_reads_prompt_and_answers_once() -> None:
    work = work_of("hidden", cell(), reads_hidden=True)
    assert work.tokens_in == 1e5 * (40 + 240)
    assert work.hours == pytest.approx(1e5 * 280 * 16e9 / (989e12 * 0.3) / 3600)


@pytest.mark.parametrize("engine", ["openai", "vllm"])
def test_a_model_of_unknown_size_is_given_no_time(engine: str) -> None:
    work = work_of("sample", cell(PlanModel(name="m", parameters=None, engine=engine)))
    assert work.hours == 0 and work.limit in {"the server", "the model's size is unknown"}
    assert work.calls == 1e5


def test_a_cell_without_known_sizes_is_given_no_work() -> None:
    assert estimate(PlanStudy(name="s", cells=(cell(granted=None),)), RATES) == []


def test_a_cpu_is_scaled_by_parameters_and_cores() -> None:
    # 1e5 x (40 / 1000 + 240 / 447) s x twice the parameters x half the time on four cores
    small = cell(PlanModel(name="m", parameters=0.27))
    assert work_of("sample", small, on_cpu=True, cores=4).hours * 3600 == pytest.approx(
        1e5 * (0.04 + 240 / 447)
    )
    # 1e5 x 7 texts at 150 a second on two cores
    assert work_of("encode", small, on_cpu=True, cores=4).hours * 3600 == pytest.approx(7e5 / 300)


def test_large_encoders_have_a_rate_of_their_own() -> None:
    small, large = (work_of("encode", cell(encoders=(("e", dim),))).hours for dim in (384, 1024))
    assert large == pytest.approx(10 * small)


@pytest.mark.parametrize(("parameters", "expected"), [(8.0, 24_725), (32.5, 6_086), (70.6, 2_802)])
def test_reading_costs_two_operations_a_parameter(parameters: float, expected: float) -> None:
    # 989e12 x 0.4 / (2 x 8e9) = 24,725
    assert prefill_tokens_per_s(parameters, 989e12, 0.4) == pytest.approx(expected, rel=1e-3)


def test_the_decoding_rate_gives_10_000_at_8b_and_18_000_at_3b() -> None:
    # (8 / 3.6) ** 0.74 = 1.806
    assert decode_tokens_per_s(8.0, RATES) == 10_000
    assert decode_tokens_per_s(3.6, RATES) == pytest.approx(18_060, rel=1e-3)


def test_reading_adds_the_vision_tower_to_the_language_model() -> None:
    # Language model: 100 x 431 tokens x 2 x 7.61e9 = 6.560e14 operations; tower: 100 x 1564 patches x
    # 2 x 0.68e9 = 2.127e14; together 8.687e14 operations at 3.956e14 a second.
    shown = cell(VISION_MODEL, image=ImageCost(391, 1564), granted=Sizes(60, 40))
    assert prompt_tokens(replace(shown, wording_tokens=12.5), RATES) == 443.5  # 20 + 12.5 + 20 + 391
    assert reading_seconds(shown, 0, RATES, 0.4) == pytest.approx(2.196, rel=1e-3)


# The published estimate of the paper's grid, in GPU-hours of H100s.
@pytest.mark.parametrize(
    ("model", "short", "long"),
    [("qwen-3b", 0.56, 1.08), ("qwen-7b", 0.89, 1.92), ("llava-7b", 1.95, 2.99), ("idefics2-8b", 2.6, 7.4)],
)
def test_sampling_is_within_a_fifth_of_the_published_estimate(model: str, short: float, long: float) -> None:
    assert hours("sample", model) == pytest.approx(short, rel=0.2)
    assert hours("sample", model, answer_tokens=40.0) == pytest.approx(long, rel=0.2)


@pytest.mark.parametrize(("judge", "expected"), [(JUDGE_8B, 6.3), (JUDGE_70B, 23.2)], ids=["8b", "70b"])
def test_judging_is_within_a_fifth_of_the_published_estimate(judge: PlanModel, expected: float) -> None:
    assert hours("judge", judge.name, AS_WRITTEN) == pytest.approx(expected, rel=0.2)
    assert hours("judge", judge.name) == pytest.approx(expected * 0.35 * 0.5, rel=0.2)


def test_entailment_is_within_a_fifth_of_the_published_estimate() -> None:
    assert hours("entail", "deberta", AS_WRITTEN) == pytest.approx(6.7, rel=0.2)
    assert hours("entail", "deberta") == pytest.approx(0.74, rel=0.2)


def test_hidden_passes_are_in_the_published_range() -> None:
    assert 4 <= sum(hours("hidden", model) for model in MODELS) <= 8
