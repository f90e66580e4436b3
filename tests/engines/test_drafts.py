from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from sgpu.engines.base import Answer, Sampling
from sgpu.engines.drafts import Drafts
from tests.engines.tiny_llama import build

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
