"""The work of each stage, against numbers worked out by hand and against the published estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sgpu.datasets.base import DATASETS
from sgpu.models.cards import ModelCard
from sgpu.plan import estimate as module
from sgpu.plan.estimate import Work, estimate, grant_sizes
from sgpu.plan.rates import load_rates
from sgpu.study.benchmark import Study, load_study
from sgpu.study.data_specs import QuestionsSpec, dataset_card
from sgpu.study.models import MODELS
from tests.plan.test_plan import STUDIES

RATES = load_rates()
CARD = ModelCard(name="8b", source="8b", licence="-", memory_gib=15.0, parameters=8.0, shape=(32, 4096))
CARDS = [
    CARD,
    replace(CARD, name="wide", parameters=0.5, tensor_parallel_size=4),
    replace(CARD, name="small", parameters=0.27),
    replace(CARD, name="unknown", parameters=0.0, memory_gib=0.0),
]
SERVED = {"name": "served", "engine": "openai"}
OWN = {"kind": "jsonl", "path": "q.jsonl", "n_train": 60_000, "n_test": 40_000}


@pytest.fixture(autouse=True)
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    for card in CARDS:
        monkeypatch.setitem(MODELS, card.name, card)


def work_of(stage: str, model: object = "8b", /, **changes: Any) -> Work:
    """Return the work of a stage for 1e5 questions of 20 tokens, 20 answers of 12 and prompts of 40."""
    tree = {"models": [model], "datasets": [OWN], "resources": {"device": "cuda"}, "methods": ["sgpu"]}
    sampling = {"n": 20, "prompt": "{question}", **changes.pop("sampling", {})}
    study = Study.model_validate({**tree, "sampling": sampling, **changes})
    return next(work for work in estimate(study, RATES)[0] if work.stage == stage)


@pytest.mark.parametrize(
    ("model", "changes", "limit", "seconds"),
    [
        # 2e6 / 800 = 2500 s; compute 1e5 x 40 / 24725 + 2.2e7 / 10000 = 2362 s
        ("8b", {"sampling": {"max_tokens": 11}}, "finished sequences", 2500),
        # 1e5 x 40 / 24725 + 1e5 x 20 x 12 / 10000 = 161.8 + 2400 s
        ("8b", {}, "compute", 2561.8),
        # All limits of an engine count all its GPUs.
        ("wide", {}, "finished sequences", 4 * 2500),
        # 14,000 / 60 a second
        (
            "qwen2.5-vl-3b-instruct",
            {"datasets": [{"kind": "ok-vqa"}], "sampling": {"n": 2, "max_tokens": 2}},
            "new images",
            14_000 / 60,
        ),
        # 1e5 x 40 / (989e12 x 0.3 / 16e9) + 2.4e7 / 2150
        ({"name": "8b", "engine": "transformers"}, {}, "compute", 215.7 + 11162.8),
    ],
)
def test_sampling_is_limited_by_the_slowest(
    model: object, changes: dict[str, Any], limit: str, seconds: float
) -> None:
    work = work_of("sample", model, **changes)
    assert (work.limit, work.hours) == (limit, pytest.approx(seconds / 3600, rel=1e-4))


def test_a_judge_is_asked_once_for_equal_answers_and_half_its_prompt_is_cached() -> None:
    # 1e5 questions x 7 distinct answers x 150 tokens / 2 at 24725 a second
    judge = {"name": "llm", "model": "8b", "guard": False}
    work = work_of("judge", judge=judge)
    assert (work.calls, work.rows) == (pytest.approx(700_000), 100_000)
    assert work.hours == pytest.approx(700_000 * 75 / 24_725 / 3600)
    assert work_of("judge", judge=judge | {"guard": True}).tokens_in == pytest.approx(700_000 * 200)


def test_a_rule_judges_in_no_time() -> None:
    assert work_of("judge").hours == 0


def test_entailment_compares_ordered_pairs_of_distinct_answers() -> None:
    # 1e5 x 7 x 6 pairs at 4150 a second
    work = work_of("entail", methods=["semantic_entropy"], entailment={"backend": "deberta"})
    assert (work.calls, work.hours) == (pytest.approx(4.2e6), pytest.approx(4.2e6 / 4150 / 3600))


@pytest.mark.parametrize(("threshold", "stage"), [(0.8, "entail"), (None, "entail by cosine")])
def test_cosine_waits_for_labels_only_if_its_threshold_is_fitted(threshold: float, stage: str) -> None:
    cosine = {"backend": "cosine", "threshold": threshold}
    assert work_of(stage, methods=["semantic_entropy"], entailment=cosine).pool == "entail all-MiniLM-L6-v2"


def test_a_hidden_pass_reads_prompt_and_answers_once() -> None:
    work = work_of("hidden", methods=["sep"])
    assert work.tokens_in == 1e5 * (40 + 240)
    assert work.hours == pytest.approx(1e5 * 280 * 16e9 / (989e12 * 0.3) / 3600)


@pytest.mark.parametrize("model", [SERVED, "unknown"])
def test_a_model_of_unknown_size_is_given_no_time(model: object) -> None:
    work = work_of("sample", model)
    assert work.hours == 0 and work.limit in {"the server", "the model's size is unknown"}
    assert work.calls == 1e5


def test_a_cpu_is_scaled_by_parameters_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1e5 x (40 / 1000 + 240 / 447) s x twice the parameters x half the time on four cores
    monkeypatch.setattr(module, "available_cores", lambda: 4)
    sample, encode = (work_of(stage, "small", resources={"device": "cpu"}) for stage in ("sample", "encode"))
    assert sample.hours * 3600 == pytest.approx(1e5 * (0.04 + 240 / 447))
    # 1e5 x 7 texts at 150 a second on two cores
    assert encode.hours * 3600 == pytest.approx(7e5 / 300)


def test_large_encoders_have_a_rate_of_their_own() -> None:
    small = work_of("encode")
    large = work_of("encode", encoder={"name": "modernbert-embed-large"})
    assert large.hours == pytest.approx(10 * small.hours)


# The published estimate of the paper's grid, in GPU-hours of H100s.
PUBLISHED = [
    ("sample", "qwen2.5-vl-3b-instruct", 0.56, 1.08),
    ("sample", "qwen2.5-vl-7b-instruct", 0.89, 1.92),
    ("sample", "llava-1.6-mistral-7b", 1.95, 2.99),
    ("sample", "idefics2-8b-chatty", 2.6, 7.4),
    ("judge", "llama-3.1-8b-instruct", 6.3, None),
    ("judge", "llama-3.1-70b-instruct", 23.2, None),
    ("entail", "deberta", 6.7, None),
]


@pytest.mark.parametrize("tokens", [12, 40])
def test_the_papers_grid_takes_what_was_published(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    card = property(lambda spec: replace(dataset_card(spec.kind), answer_tokens=tokens))
    monkeypatch.setattr(QuestionsSpec, "card", card)
    rates = load_rates(None, ["rates.judge.distinct_share=1", "rates.judge.prefix_hits=0"])
    study = load_study(STUDIES / "paper.yaml", ["datasets.3.path=vizwiz", "judge.guard=false"])
    hours: dict[tuple[str, str], float] = {}
    for work in estimate(study, rates)[0]:
        hours[work.stage, work.engine] = hours.get((work.stage, work.engine), 0.0) + work.hours
    for stage, engine, short, long in PUBLISHED:
        if expected := short if tokens == 12 else long:
            assert hours[stage, engine] == pytest.approx(expected, rel=0.2), engine
    if tokens == 12:
        assert 4 <= sum(value for (stage, _), value in hours.items() if stage == "hidden") <= 8


@pytest.mark.parametrize(
    ("dataset", "requested", "expected"),
    [
        ("advqa", (6_000, 2_000), (6_000, 2_000)),
        ("vqa-rad", (2_000, 500), (1_793, 451)),
        ("imagenette", (10_000, 5_000), (9_469, 3_925)),
        ("triviaqa", (10_000, 1_000), (10_000, 1_000)),
        ("gsm8k", (0, 1_319), (0, 1_319)),
    ],
)
def test_the_papers_requests_are_granted_as_far_as_rows_exist(
    dataset: str, requested: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert grant_sizes(*requested, DATASETS.get(dataset).pools) == expected


def test_one_pool_fills_test_first() -> None:
    assert grant_sizes(90, 30, {"all": 100}) == (70, 30)
    assert grant_sizes(90, 300, {"all": 100}) == (0, 100)
