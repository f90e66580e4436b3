from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import AutoTokenizer

from sgpu.engines.base import Answer, EngineConfig, Prompt, Sampling
from sgpu.engines.transformers import Drafts, TransformersEngine
from sgpu.study.models import MODELS
from tests.contracts.engine_contract import EngineContract, prompt
from tests.engines.tiny_llama import build


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformersEngine]:
    folder = build(tmp_path_factory.mktemp("tiny-llama"))
    engine = TransformersEngine(EngineConfig(model=str(folder), dtype="float32", device="cpu"))
    yield engine
    engine.close()


def forward(engine: TransformersEngine, text: str) -> torch.Tensor:
    """Logits (T, V) of a plain forward pass, without a cache."""
    ids = torch.tensor([engine._tokenizer(text, add_special_tokens=False).input_ids])
    with torch.inference_mode():
        return engine._model(ids, use_cache=False).logits[0]


def rendered(text: str) -> str:
    return f"<s>user\n{text}</s>\n<s>assistant\n"


class TestContract(EngineContract):
    pass


def test_log_probabilities_are_those_of_a_plain_forward_pass(engine: TransformersEngine) -> None:
    (generation,) = engine.sample([prompt("One?")], Sampling(n=5, max_tokens=9))
    ids = engine._tokenizer(rendered("One?"), add_special_tokens=False).input_ids
    for answer in generation.answers:
        with torch.inference_mode():
            logits = engine._model(torch.tensor([[*ids, *answer.token_ids]]), use_cache=False).logits[0]
        expected = logits.log_softmax(-1)[len(ids) - 1 : -1].gather(1, torch.tensor([answer.token_ids]).T)[
            :, 0
        ]
        np.testing.assert_allclose(answer.token_logprobs, expected, atol=2e-5)


def test_first_token_follows_top_k_then_top_p(engine: TransformersEngine) -> None:
    n = 4000
    sampling = Sampling(n=n, temperature=0.7, top_k=12, top_p=0.8, max_tokens=1)
    (generation,) = engine.sample([prompt("One?")], sampling)
    logits = forward(engine, rendered("One?"))[-1].double().numpy() / 0.7
    best = np.argsort(-logits)[:12]
    p = np.exp(logits[best]) / np.exp(logits[best]).sum()
    # Top-p keeps a token if those before it hold less than 0.8.
    kept = np.cumsum(p) - p < 0.8
    expected = dict(zip(best[kept], p[kept] / p[kept].sum(), strict=True))
    drawn = [answer.token_ids[0] for answer in generation.answers]
    assert set(drawn) <= set(expected)
    counts = [drawn.count(token) for token in expected]
    assert len(expected) > 2
    assert chisquare(counts, [n * share for share in expected.values()]).pvalue > 1e-3


def test_end_token_ends_the_answer_and_is_kept(engine: TransformersEngine, monkeypatch: Any) -> None:
    (free,) = engine.sample([prompt("One?")], Sampling(n=6, max_tokens=12))
    end = free.answers[0].token_ids[2]
    monkeypatch.setattr(engine, "_eos", frozenset({end}))
    (cut,) = engine.sample([prompt("One?")], Sampling(n=6, max_tokens=12))
    for before, after in zip(free.answers, cut.answers, strict=True):
        length = before.token_ids.index(end) + 1 if end in before.token_ids else 12
        assert after.token_ids == before.token_ids[:length]
        assert after.finish_reason == ("stop" if end in before.token_ids else "length")


def test_repetition_penalty_changes_draws_but_not_raw_log_probabilities(engine: TransformersEngine) -> None:
    sampling = Sampling(n=1, max_tokens=1, temperature=0.0, repetition_penalty=50.0)
    answer = engine.sample([prompt("One?")], sampling)[0].answers[0]
    logprobs = forward(engine, rendered("One?"))[-1].log_softmax(-1)
    assert answer.token_logprobs[0] == pytest.approx(float(logprobs[answer.token_ids[0]]), abs=2e-5)


def test_image_for_a_text_model_is_refused(engine: TransformersEngine) -> None:
    with pytest.raises(ValueError, match="cannot read the image"):
        engine.sample([Prompt((("user", "What is this?"),), 0, image=b"x")], Sampling(n=1))


def test_model_without_chat_template_is_refused(engine: TransformersEngine, monkeypatch: Any) -> None:
    monkeypatch.setattr(engine._tokenizer, "chat_template", None)
    with pytest.raises(ValueError, match="no chat template"):
        engine.sample([prompt("One?")], Sampling(n=1))


def test_chat_options_reach_the_template(engine: TransformersEngine, tmp_path: Path) -> None:
    dated = "{{ date_string }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    config = replace(engine.config, options={"chat_options": {"date_string": "26 Jul 2024"}})
    other = TransformersEngine(config)
    other._tokenizer.chat_template = dated
    assert other._checkpoint.render([prompt("One?")], 1)[0].text == "26 Jul 2024One?"


def test_a_base_model_is_sampled_with_the_template_of_its_card(engine: TransformersEngine) -> None:
    options = {"chat_options": MODELS["llama-3.1-8b"].chat_options}
    base = TransformersEngine(replace(engine.config, options=options))
    base._tokenizer.chat_template = None
    assert base._checkpoint.render([prompt("One?")], 1)[0].text == f"{base._tokenizer.bos_token}One?"
    assert len(base.sample([prompt("One?")], Sampling(n=2, max_tokens=2))[0].answers) == 2


END = 1  # </s> of the tiny Llama


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return AutoTokenizer.from_pretrained(build(tmp_path_factory.mktemp("tiny-llama")))


def written(tokenizer: Any, text: str, stop: tuple[str, ...] = (), extra: tuple[int, ...] = ()) -> Answer:
    """The one answer after each token of ``text`` was offered to it, then ``extra``."""
    drafts = Drafts(torch.tensor([[0, 5]]), 3, Sampling(n=1, stop=stop), tokenizer, frozenset({END}))
    for token in (*tokenizer(text, add_special_tokens=False).input_ids, *extra):
        drafts.extend([token], [-1.0])
    generation = drafts.generation("hash")
    assert (generation.prompt_sha256, generation.n_prompt_tokens) == ("hash", 2)
    return generation.answers[0]


def test_answer_ends_with_the_stop_string_that_comes_first(tokenizer: Any) -> None:
    answer = written(tokenizer, "one, two. three", stop=(".", ","))
    assert (answer.raw_text, answer.text, answer.finish_reason) == ("one,", "one", "stop")
    assert answer.n_tokens == len("one,")


def test_tokens_after_the_end_token_are_not_added(tokenizer: Any) -> None:
    answer = written(tokenizer, "one", extra=(END, 40, 41))
    assert (answer.text, answer.token_ids[-1], answer.n_tokens) == ("one", END, len("one") + 1)


def test_answer_without_an_end_is_cut_by_length(tokenizer: Any) -> None:
    assert written(tokenizer, "one").finish_reason == "length"


def test_draws_of_a_prompt_follow_its_seed_alone(tokenizer: Any) -> None:
    logits = torch.linspace(-1, 1, 258).repeat(6, 1)

    def drawn(seed: int) -> list[int]:
        drafts = Drafts(torch.tensor([[0]]), seed, Sampling(n=6), tokenizer, frozenset())
        torch.rand(seed)  # draws of others
        return [int(token) for _ in range(3) for token in drafts.draw(logits)]

    assert drawn(1) == drawn(1) != drawn(2)
