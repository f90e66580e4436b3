"""The work of each stage, against numbers worked out by hand and against the published estimate."""

from __future__ import annotations

import pytest

from sgpu.plan.cells import PlanCell, PlanJudge, PlanModel, PlanStudy, Sizes
from sgpu.plan.estimate import entailing, estimate, hidden_pass, judging, sampling
from sgpu.plan.plan import core_gpu_hours, scenarios
from sgpu.plan.rates import load_rates
from tests.plan.paper_grid import JUDGE_8B, JUDGE_70B, MODELS, paper_study

RATES = load_rates()
TEXT_MODEL = PlanModel(name="m", parameters=8.0)
AS_WRITTEN = load_rates(None, ["rates.judge.distinct_share=1", "rates.judge.prefix_hits=0"])


def cell(model: PlanModel = TEXT_MODEL, **changes: object) -> PlanCell:
    facts = {"model": model, "dataset": "d", "requested": None, "granted": Sizes(60_000, 40_000), "n": 20}
    return PlanCell(**{**facts, **changes})  # type: ignore[arg-type]


def hours(stage: str, model: str, rates: object = RATES, answer_tokens: float = 12.0) -> float:
    work = estimate(paper_study(answer_tokens), rates)  # type: ignore[arg-type]
    return sum(one.hours for one in work if (one.stage, one.model) == (stage, model))


def test_short_answers_are_bounded_by_finished_sequences() -> None:
    # 2e6 / 800 = 2500 s; compute 1e5 x 40 / 24725 + 2.2e7 / 10000 = 2362 s
    work = sampling(cell(answer_tokens=11.0), RATES)
    assert (work.bound, work.hours) == ("finished sequences", pytest.approx(2500 / 3600))


def test_long_answers_are_bounded_by_compute() -> None:
    # 1e5 x 40 / 24725 + 1e5 x 20 x 40 / 10000 = 161.8 + 8000 s
    work = sampling(cell(answer_tokens=40.0), RATES)
    assert (work.bound, work.hours) == ("prefill and decode", pytest.approx(8161.8 / 3600, rel=1e-4))
    assert (work.tokens_in, work.tokens_out) == (4e6, 8e7)


def test_one_answer_an_image_is_bounded_by_new_images() -> None:
    # 1e5 / 60 = 1667 s against 2e5 / 800 = 250 s
    model = PlanModel(name="m", parameters=3.75, image_rule="qwen2.5-vl")
    work = sampling(cell(model, n=2, answer_tokens=2.0, image=(32, 32)), RATES)
    assert (work.bound, work.hours) == ("new images", pytest.approx(1e5 / 60 / 3600))


def test_bounds_of_an_engine_count_all_its_gpus() -> None:
    assert sampling(cell(PlanModel(name="m", parameters=0.5, gpus=4)), RATES).hours == pytest.approx(
        4 * 2500 / 3600
    )


def test_a_judge_is_asked_once_for_equal_answers_and_half_its_prompt_is_cached() -> None:
    # 4e4 questions x 7 distinct answers x 150 tokens / 2 = 2.1e7 tokens at 24725 a second
    work = judging(cell(), PlanJudge("llm", TEXT_MODEL, 40_000, "test"), RATES)
    assert (work.calls, work.before_distinct) == (pytest.approx(280_000), 800_000)
    assert work.hours == pytest.approx(2.1e7 / 24725 / 3600)


def test_a_rule_judges_in_no_gpu_time() -> None:
    work = judging(cell(), PlanJudge("alias", None, 40_000, "test"), RATES)
    assert (work.hours, work.on_cpu, work.calls) == (0, True, 800_000)


def test_entailment_compares_ordered_pairs_of_distinct_answers() -> None:
    # 1e5 x 7 x 6 pairs at 4150 a second
    study = PlanStudy(name="s", cells=(), entailment="deberta")
    work = entailing(cell(), study, RATES)
    assert (work.calls, work.before_distinct) == (pytest.approx(4.2e6), 1e5 * 380)
    assert work.hours == pytest.approx(4.2e6 / 4150 / 3600)


def test_a_hidden_pass_reads_prompt_and_answers_once() -> None:
    work = hidden_pass(cell(), RATES)
    assert work.tokens_in == 1e5 * (40 + 240)
    assert work.hours == pytest.approx(1e5 * 280 * 16e9 / (989e12 * 0.3) / 3600)


@pytest.mark.parametrize("engine", ["openai", "vllm"])
def test_a_model_of_unknown_size_is_given_no_time(engine: str) -> None:
    work = sampling(cell(PlanModel(name="m", parameters=None, engine=engine)), RATES)
    assert work.hours == 0 and work.bound in {"the server", "unknown: the model's size"}
    assert work.calls == 1e5


def test_a_cell_without_known_sizes_is_given_no_work() -> None:
    study = PlanStudy(name="s", cells=(cell(granted=None),))
    assert estimate(study, RATES) == []


# The published estimate of the paper's grid, in GPU-hours of H100s.
@pytest.mark.parametrize(
    ("model", "short", "long"),
    [("qwen-3b", 0.56, 1.08), ("qwen-7b", 0.89, 1.92), ("llava-7b", 1.95, 2.99), ("idefics2-8b", 2.6, 7.4)],
)
def test_sampling_is_within_a_fifth_of_the_published_estimate(model: str, short: float, long: float) -> None:
    assert hours("sample", MODELS[model].name) == pytest.approx(short, rel=0.2)
    assert hours("sample", MODELS[model].name, answer_tokens=40.0) == pytest.approx(long, rel=0.2)


@pytest.mark.parametrize(("judge", "expected"), [(JUDGE_8B, 6.3), (JUDGE_70B, 23.2)], ids=["8b", "70b"])
def test_judging_is_within_a_fifth_of_the_published_estimate(judge: PlanModel, expected: float) -> None:
    assert hours("judge", judge.name, AS_WRITTEN) == pytest.approx(expected, rel=0.2)
    assert hours("judge", judge.name) == pytest.approx(expected * 0.35 * 0.5, rel=0.2)


def test_entailment_is_within_a_fifth_of_the_published_estimate() -> None:
    assert hours("entail", "deberta", AS_WRITTEN) == pytest.approx(6.7, rel=0.2)
    assert hours("entail", "deberta") == pytest.approx(0.74, rel=0.2)


def test_hidden_passes_are_in_the_published_range() -> None:
    assert 4 <= sum(hours("hidden", model.name) for model in MODELS.values()) <= 8


def test_the_core_benchmark_is_within_a_fifth_of_the_published_estimate() -> None:
    as_written, distinct, cached = (found for _, found in scenarios(paper_study(), RATES))
    assert as_written == pytest.approx(36, rel=0.2)
    assert distinct == pytest.approx(16, rel=0.2)
    assert cached == pytest.approx(11, rel=0.2)
    assert core_gpu_hours(estimate(paper_study(), RATES)) == cached


def test_the_papers_grid_has_266000_prompts_and_5_million_answers() -> None:
    cells = paper_study().cells
    assert sum(one.questions for one in cells) == 266_000
    assert sum(one.answers for one in cells) == 5_320_000
