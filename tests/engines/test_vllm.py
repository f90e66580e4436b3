"""vLLM with the packaged SmolLM2, on whatever device is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from sgpu.engines.base import Engine, Prompt, Sampling
from sgpu.study.models import engine_config, model_card
from tests.contracts.engine_contract import PROMPTS, SAMPLING, EngineContract, prompt, texts

pytestmark = pytest.mark.slow


def build(dtype: str) -> Engine:
    from sgpu.engines.vllm import VLLMEngine

    card = replace(model_card("smollm2-135m-instruct"), dtype=dtype, max_num_seqs=64)
    return VLLMEngine(engine_config(card))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = build("bfloat16")
    yield engine
    engine.close()


class TestContract(EngineContract):
    def test_same_call_gives_same_log_probabilities(self, engine: Engine) -> None:
        assert engine.sample(PROMPTS, SAMPLING) == engine.sample(PROMPTS, SAMPLING)

    def test_system_message_replaces_the_default_one(self, engine: Engine) -> None:
        plain, told = engine.sample(
            [prompt("Who?"), Prompt((("system", "Be brief."), ("user", "Who?")), 1024)], Sampling(n=1)
        )
        assert told.n_prompt_tokens < plain.n_prompt_tokens


@pytest.fixture(scope="module")
def float32_engine() -> Iterator[Engine]:
    """With rounding out of the way, an answer depends on its prompt and seed alone."""
    engine = build("float32")
    yield engine
    engine.close()


def test_it_knows_an_easy_fact(float32_engine: Engine) -> None:
    one = prompt("What is the capital of France?")
    (generation,) = float32_engine.sample([one], Sampling(n=1, temperature=0.0))
    assert "Paris" in generation.answers[0].text


def test_end_token_is_kept(float32_engine: Engine) -> None:
    (generation,) = float32_engine.sample(
        [prompt("What is the capital of France?")], Sampling(n=1, temperature=0.0)
    )
    answer = generation.answers[0]
    assert (answer.finish_reason, answer.token_ids[-1]) == ("stop", 2)


def test_answers_do_not_depend_on_the_other_prompts(float32_engine: Engine) -> None:
    sampling = Sampling(n=4, max_tokens=16)
    alone = [float32_engine.sample([one], sampling)[0] for one in PROMPTS]
    assert texts(alone) == texts(float32_engine.sample(PROMPTS, sampling))


def test_log_probabilities_are_those_of_transformers(float32_engine: Engine) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = engine_config(model_card("smollm2-135m-instruct")).model
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Who wrote Hamlet?"}], add_generation_prompt=True, return_dict=False
    )
    (generation,) = float32_engine.sample([prompt("Who wrote Hamlet?")], Sampling(n=3, max_tokens=12))
    assert generation.n_prompt_tokens == len(ids)
    for answer in generation.answers:
        with torch.inference_mode():
            logprobs = model(torch.tensor([[*ids, *answer.token_ids]])).logits[0].log_softmax(-1)
        chosen = logprobs[len(ids) - 1 : -1].gather(1, torch.tensor([answer.token_ids]).T)[:, 0]
        np.testing.assert_allclose(answer.token_logprobs, chosen, atol=1e-3)
