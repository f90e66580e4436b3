"""Prompts that are continued together get the answers that each gets alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
)

from sgpu.engines import transformers as engine_module
from sgpu.engines.base import EngineConfig, Generation, Prompt, Sampling
from sgpu.engines.merged_cache import MergedCache, NextPosition, ReadPrompt, cache_budget, groups
from sgpu.engines.transformers import TransformersEngine
from sgpu.errors import UsageError
from tests.engines.tiny_image_models import FAMILIES, SIZE, SPREAD, picture
from tests.engines.tiny_llama import build

TEXTS = ["What is it?", "And now?", "Which of them is the longest one of all?", "Who?", "x " * 40]
TEXT_PROMPTS = [Prompt((("user", text),), seed) for seed, text in enumerate(TEXTS, 5)]
# Images of several sizes and none, so that groups mix them.
IMAGE_PROMPTS = [
    replace(TEXT_PROMPTS[0], image=picture(0)),
    TEXT_PROMPTS[1],
    replace(TEXT_PROMPTS[2], image=picture(1, 40, 130)),
    TEXT_PROMPTS[4],
    replace(TEXT_PROMPTS[0], image=picture(2, 200, 60)),
]
SAMPLED = Sampling(n=4, max_tokens=10)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    builders = {**FAMILIES, "llama": build}
    return {family: build_(tmp_path_factory.mktemp(family)) for family, build_ in builders.items()}


@pytest.fixture(scope="module", params=[*FAMILIES, "llama"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def engine_of(folder: Path, together: object) -> TransformersEngine:
    config = EngineConfig(
        model=str(folder), dtype="float32", device="cpu", options={"prompts_together": together}
    )
    return TransformersEngine(config)


@pytest.fixture(scope="module")
def alone(folders: dict[str, Path], family: str) -> TransformersEngine:
    return engine_of(folders[family], 1)


@pytest.fixture(scope="module", params=[3, 8])
def merging(request: pytest.FixtureRequest, folders: dict[str, Path], family: str) -> TransformersEngine:
    return engine_of(folders[family], request.param)


def prompts_of(family: str) -> list[Prompt]:
    return TEXT_PROMPTS if family == "llama" else IMAGE_PROMPTS


def each_alone(engine: TransformersEngine, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
    return [engine.sample([prompt], sampling)[0] for prompt in prompts]


def assert_same(found: Sequence[Generation], expected: Sequence[Generation]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.prompt_sha256, ours.n_prompt_tokens) == (theirs.prompt_sha256, theirs.n_prompt_tokens)
        for one, other in zip(ours.answers, theirs.answers, strict=True):
            assert one.token_ids == other.token_ids
            assert (one.text, one.finish_reason) == (other.text, other.finish_reason)
            np.testing.assert_allclose(one.token_logprobs, other.token_logprobs, atol=2e-4)


def calls_of(engine: TransformersEngine, monkeypatch: Any) -> list[dict[str, Any]]:
    """What the model is given in each step after the prompts."""
    calls: list[dict[str, Any]] = []
    forward = engine._model.forward

    def recorded(*args: Any, **kwargs: Any) -> Any:
        if "past_key_values" in kwargs:
            calls.append({name: kwargs.get(name) for name in ("input_ids", "attention_mask", "position_ids")})
        return forward(*args, **kwargs)

    monkeypatch.setattr(engine._model, "forward", recorded)
    return calls


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(n=2, max_tokens=10, temperature=0.0),
        SAMPLED,
        Sampling(n=3, max_tokens=10, repetition_penalty=1.8),
        Sampling(n=3, max_tokens=24, stop=("a", "e", "t", "1")),
    ],
    ids=["greedy", "sampled", "repetition penalty", "stop strings"],
)
def test_answers_are_those_of_each_prompt_alone(
    alone: TransformersEngine, merging: TransformersEngine, family: str, sampling: Sampling
) -> None:
    prompts = prompts_of(family)
    assert_same(merging.sample(prompts, sampling), each_alone(alone, prompts, sampling))


def test_prompt_whose_answers_have_ended_leaves_the_batch(
    alone: TransformersEngine, folders: dict[str, Path], family: str, monkeypatch: Any
) -> None:
    prompts, sampling = prompts_of(family)[:3], replace(SAMPLED, n=1, max_tokens=12)
    free = each_alone(alone, prompts, sampling)
    # Tokens at which the answers end in steps of their own, at least one of them after the first.
    ends = frozenset({free[0].answers[0].token_ids[2], free[1].answers[0].token_ids[5]})
    engine = engine_of(folders[family], 3)
    for one in (alone, engine):
        monkeypatch.setattr(one, "_eos", ends)
    calls = calls_of(engine, monkeypatch)
    found = engine.sample(prompts, sampling)
    assert_same(found, each_alone(alone, prompts, sampling))
    lengths = [generation.answers[0].n_tokens for generation in found]
    assert len(set(lengths)) > 1
    # A token is drawn from the prompt itself, and each later one from a step.
    expected = [sum(length > step for length in lengths) for step in range(1, max(lengths))]
    assert [len(call["input_ids"]) for call in calls] == expected


def test_rows_of_all_prompts_are_decoded_in_one_step(folders: dict[str, Path], monkeypatch: Any) -> None:
    engine = engine_of(folders["llama"], 8)
    monkeypatch.setattr(engine, "_eos", frozenset())
    calls = calls_of(engine, monkeypatch)
    engine.sample(TEXT_PROMPTS, SAMPLED)
    assert [len(call["input_ids"]) for call in calls] == [len(TEXT_PROMPTS) * 4] * 9


def test_padding_is_masked_and_not_counted_in_positions(folders: dict[str, Path], monkeypatch: Any) -> None:
    engine = engine_of(folders["llama"], 2)
    calls = calls_of(engine, monkeypatch)
    short, long = engine.sample([TEXT_PROMPTS[1], TEXT_PROMPTS[0]], Sampling(n=1, max_tokens=2))
    padding = long.n_prompt_tokens - short.n_prompt_tokens
    assert padding == len("What is it?") - len("And now?")  # one token a byte
    (call,) = calls
    ones = [1] * (long.n_prompt_tokens + 1)
    assert call["attention_mask"].tolist() == [[0] * padding + ones[padding:], ones]
    assert call["position_ids"].tolist() == [[short.n_prompt_tokens], [long.n_prompt_tokens]]


def test_prompts_of_one_length_need_no_mask(folders: dict[str, Path], monkeypatch: Any) -> None:
    engine = engine_of(folders["llama"], 2)
    calls = calls_of(engine, monkeypatch)
    prompts = [Prompt((("user", text),), 1) for text in ("One?", "Two?")]
    found = engine.sample(prompts, SAMPLED)
    assert calls and all(call["attention_mask"] is None for call in calls)
    assert_same(found, each_alone(engine_of(folders["llama"], 1), prompts, SAMPLED))


def test_order_of_prompts_changes_nothing(merging: TransformersEngine, family: str) -> None:
    prompts = prompts_of(family)
    assert merging.sample(prompts[::-1], SAMPLED)[::-1] == merging.sample(prompts, SAMPLED)


def test_one_prompt_together_does_not_depend_on_the_others(alone: TransformersEngine, family: str) -> None:
    prompts = prompts_of(family)
    assert alone.sample(prompts, SAMPLED) == each_alone(alone, prompts, SAMPLED)


def test_without_memory_prompts_are_continued_alone(
    alone: TransformersEngine, merging: TransformersEngine, family: str, monkeypatch: Any
) -> None:
    """Of two prompts the second is read before the first is continued; what it leaves in the model must not
    count."""
    monkeypatch.setattr(engine_module, "cache_budget", lambda device: 0.0)
    calls = calls_of(merging, monkeypatch)
    prompts = prompts_of(family)
    assert_same(merging.sample(prompts, SAMPLED), each_alone(alone, prompts, SAMPLED))
    assert {len(call["input_ids"]) for call in calls} == {SAMPLED.n}


def mistral(**changes: Any) -> Any:
    return MistralForCausalLM(MistralConfig(num_key_value_heads=1, **changes))


# Each cannot be merged for another reason.
ALONE: dict[str, Callable[..., Any]] = {
    "sliding window": lambda **size: mistral(sliding_window=8, **size),
    "linear attention": lambda **size: Lfm2ForCausalLM(
        Lfm2Config(num_key_value_heads=1, layer_types=["conv", "full_attention"], **size)
    ),
    "learned positions": lambda **size: GPT2LMHeadModel(
        GPT2Config(
            n_embd=64, n_layer=2, n_head=2, vocab_size=size["vocab_size"], bos_token_id=0, eos_token_id=1
        )
    ),
    "positions scaled by length": lambda **size: LlamaForCausalLM(
        LlamaConfig(
            max_position_embeddings=64,
            rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
            **size,
        )
    ),
}


def generated(engine: TransformersEngine, prompt: Prompt) -> tuple[list[int], list[float]]:
    """The ten tokens of greedy `generate`, with their raw log-probabilities."""
    (text,) = engine._checkpoint.render([prompt], 10)
    ids = torch.tensor([text.token_ids])
    output = engine._model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=10,
        return_dict_in_generate=True,
        output_logits=True,
    )
    tokens = output.sequences[:, ids.shape[1] :]
    logprobs = torch.stack(output.logits, dim=1).log_softmax(-1).gather(2, tokens[..., None])
    return tokens[0].tolist(), logprobs[0, :, 0].tolist()


@pytest.mark.parametrize("reason", ALONE)
def test_model_that_cannot_merge_continues_prompts_alone(
    reason: str, tmp_path: Path, monkeypatch: Any
) -> None:
    folder = build(tmp_path)
    torch.manual_seed(3)
    size = {**SIZE, **SPREAD, "vocab_size": len(AutoTokenizer.from_pretrained(folder))}
    ALONE[reason](**size, bos_token_id=0, eos_token_id=1, pad_token_id=0).save_pretrained(folder)
    engine = engine_of(folder, 8)
    expected = [generated(engine, prompt) for prompt in TEXT_PROMPTS]
    calls = calls_of(engine, monkeypatch)
    found = engine.sample(TEXT_PROMPTS, Sampling(n=2, max_tokens=10, temperature=0.0))
    assert {len(call["input_ids"]) for call in calls} == {2}
    for generation, (tokens, logprobs) in zip(found, expected, strict=True):
        for answer in generation.answers:
            assert list(answer.token_ids) == tokens
            np.testing.assert_allclose(answer.token_logprobs, logprobs, atol=1e-4)


def test_mistral_without_a_window_merges(tmp_path: Path, monkeypatch: Any) -> None:
    folder = build(tmp_path)
    torch.manual_seed(3)
    size = {**SIZE, **SPREAD, "vocab_size": len(AutoTokenizer.from_pretrained(folder))}
    mistral(sliding_window=None, bos_token_id=0, eos_token_id=1, **size).save_pretrained(folder)
    engine = engine_of(folder, 8)
    calls = calls_of(engine, monkeypatch)
    engine.sample(TEXT_PROMPTS, SAMPLED)
    assert len(calls[0]["input_ids"]) == len(TEXT_PROMPTS) * SAMPLED.n


def test_position_after_a_prompt_is_the_models_own() -> None:
    """PaliGemma counts from 1."""
    torch.manual_seed(0)
    text = {"model_type": "gemma", "vocab_size": 64, "num_key_value_heads": 1, "head_dim": 32, **SIZE}
    vision = {"model_type": "siglip_vision_model", "image_size": 16, "patch_size": 8, **SIZE}
    config = PaliGemmaConfig(
        text_config=text | SPREAD, vision_config=vision, projection_dim=64, image_token_index=63
    )
    model = PaliGemmaForConditionalGeneration(config).eval()
    next_position, ids, chosen = NextPosition(model), torch.arange(7)[None], torch.tensor([[9]])
    with torch.inference_mode():
        first, second = (model(input_ids=ids, use_cache=True, logits_to_keep=1) for _ in range(2))
        position = next_position.after(first.past_key_values, 7)
        assert position == 8
        expected = model(input_ids=chosen, past_key_values=first.past_key_values).logits[:, -1]
        read = ReadPrompt(second.logits[:, -1], second.past_key_values, ids, position)
        np.testing.assert_allclose(MergedCache([read], 1, 1).step(model, chosen), expected, atol=1e-5)


class Layer:
    """Keys and values of one head of width 4 in float32: 32 bytes a token together."""

    def __init__(self, n_tokens: int) -> None:
        self.keys = self.values = torch.zeros(1, 1, n_tokens, 4)


class TwoLayers:
    def __init__(self, n_tokens: int) -> None:
        self.layers = [Layer(n_tokens), Layer(n_tokens)]


def read_prompt(n_tokens: int, next_position: int | None = 0) -> ReadPrompt:
    ids = torch.zeros(1, n_tokens, dtype=torch.long)
    return ReadPrompt(torch.zeros(1, 2), TwoLayers(n_tokens), ids, next_position)


def numbers(prompts: Sequence[ReadPrompt], most: int, budget: float) -> list[list[int]]:
    found = groups(enumerate(prompts), most, budget, Sampling(n=3, max_tokens=2))
    return [[number for number, _ in group] for group in found]


def test_groups_hold_at_most_so_many_prompts() -> None:
    assert numbers([read_prompt(5)] * 5, 2, float("inf")) == [[0, 1], [2, 3], [4]]


def test_groups_fit_in_the_budget_with_padding_and_answers() -> None:
    lengths = [5, 5, 8]
    # All padded to 8, and 2 of the answer: 3 prompts x 3 answers x 10 tokens x 64 bytes.
    prompts = [read_prompt(n_tokens) for n_tokens in lengths]
    assert numbers(prompts, 8, 3 * 3 * 10 * 64) == [[0, 1, 2]]
    assert numbers(prompts, 8, 3 * 3 * 10 * 64 - 1) == [[0, 1], [2]]


def test_prompt_that_cannot_merge_is_continued_before_another_is_read() -> None:
    read: list[int] = []

    def reading() -> Any:
        for number, position in enumerate([0, None, 0]):
            read.append(number)
            yield number, read_prompt(5, position)

    order = [
        (group[0][0], len(read)) for group in groups(reading(), 8, float("inf"), Sampling(n=3, max_tokens=2))
    ]
    assert order == [(0, 2), (1, 2), (2, 3)]


def test_budget_on_cuda_is_half_of_what_is_free(monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (100, 900))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 30)
    assert cache_budget("cuda") == 0.5 * (100 + 50 - 30)


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", True, None])
def test_number_of_prompts_that_is_none_is_refused(folders: dict[str, Path], value: object) -> None:
    with pytest.raises(UsageError, match=rf"prompts_together of .*llama.* is {value!r}; .*at least 1"):
        engine_of(folders["llama"], value)
