"""What every engine must do. A test class inherits it and gives a class-scoped fixture ``engine``."""

from __future__ import annotations

import math

import pytest

from sgpu.engines.base import Engine, Generation, Prompt, Sampling

QUESTIONS = (
    "What is the capital of France?",
    "Who wrote Hamlet?",
    "What is two plus three?",
    "In which country is the city of Lyon?",
)


def prompt(question: str, seed: int = 1024) -> Prompt:
    return Prompt((("user", question),), seed)


PROMPTS = [prompt(question, 1024 * (1 + i)) for i, question in enumerate(QUESTIONS)]
SAMPLING = Sampling(n=4, max_tokens=12)
TOO_LONG = prompt("word " * 5000)


def texts(generations: list[Generation]) -> list[list[str]]:
    return [[answer.text for answer in generation.answers] for generation in generations]


class EngineContract:
    """Prompts are in English; the model may be as small and as wrong as it likes."""

    def test_gives_n_answers_to_each_prompt(self, engine: Engine) -> None:
        assert [len(g.answers) for g in engine.sample(PROMPTS, SAMPLING)] == [4] * len(PROMPTS)

    def test_same_call_gives_same_answers(self, engine: Engine) -> None:
        assert texts(engine.sample(PROMPTS, SAMPLING)) == texts(engine.sample(PROMPTS, SAMPLING))

    def test_order_of_prompts_does_not_matter(self, engine: Engine) -> None:
        backwards = engine.sample(PROMPTS[::-1], SAMPLING)
        assert texts(engine.sample(PROMPTS, SAMPLING)) == texts(backwards[::-1])

    def test_another_seed_gives_other_answers(self, engine: Engine) -> None:
        first, second = engine.sample([prompt(QUESTIONS[0], 1024), prompt(QUESTIONS[0], 2048)], SAMPLING)
        assert [a.text for a in first.answers] != [a.text for a in second.answers]

    def test_answers_to_one_prompt_differ(self, engine: Engine) -> None:
        (generation,) = engine.sample(PROMPTS[:1], Sampling(n=8, max_tokens=12))
        assert len({a.text for a in generation.answers}) > 1

    def test_temperature_zero_gives_one_answer(self, engine: Engine) -> None:
        (generation,) = engine.sample(PROMPTS[:1], Sampling(n=3, max_tokens=12, temperature=0.0))
        assert len({a.text for a in generation.answers}) == 1

    def test_every_token_has_a_log_probability(self, engine: Engine) -> None:
        for generation in engine.sample(PROMPTS, SAMPLING):
            for answer in generation.answers:
                assert len(answer.token_logprobs) == len(answer.token_ids) == answer.n_tokens
                assert all(math.isfinite(value) and value <= 0 for value in answer.token_logprobs)

    def test_answer_is_cut_at_max_tokens(self, engine: Engine) -> None:
        (generation,) = engine.sample(PROMPTS[:1], Sampling(n=4, max_tokens=1))
        assert all(a.n_tokens == 1 for a in generation.answers)
        assert any(a.finish_reason == "length" for a in generation.answers)

    def test_answer_ends_at_a_stop_string(self, engine: Engine) -> None:
        sampling = Sampling(n=4, max_tokens=40, stop=("a", "e"))
        answers = engine.sample(PROMPTS[:1], sampling)[0].answers
        assert any(a.finish_reason == "stop" for a in answers)
        assert not any(mark in a.text for a in answers for mark in sampling.stop)

    def test_hash_is_of_the_prompt_alone(self, engine: Engine) -> None:
        hashes = [
            g.prompt_sha256
            for g in engine.sample([prompt("One?", 1024), prompt("One?", 2048), prompt("Two?")], SAMPLING)
        ]
        assert hashes[0] == hashes[1] != hashes[2]

    def test_prompt_tokens_are_counted(self, engine: Engine) -> None:
        short, long = engine.sample([prompt("One?"), prompt("One and two and three and four?")], SAMPLING)
        assert 0 < short.n_prompt_tokens < long.n_prompt_tokens

    def test_too_long_prompt_is_named(self, engine: Engine) -> None:
        with pytest.raises(ValueError, match="word word"):
            engine.sample([TOO_LONG], SAMPLING)

    def test_prompt_without_messages_is_refused(self, engine: Engine) -> None:
        with pytest.raises(ValueError, match="no messages"):
            engine.sample([Prompt((), 7)], SAMPLING)

    def test_candidates_get_probabilities(self, engine: Engine) -> None:
        rows = engine.next_token_logprobs(PROMPTS, ["A", "B", "not one token"])
        assert len(rows) == len(PROMPTS)
        for first, second, absent in rows:
            assert math.exp(first) + math.exp(second) <= 1
            assert absent == -math.inf

    def test_candidate_agrees_with_a_sampled_token(self, engine: Engine) -> None:
        (generation,) = engine.sample(PROMPTS[:1], Sampling(n=20, max_tokens=1))
        # A token may be half a character; only a whole one can be named as a candidate.
        drawn = [a for a in generation.answers if a.raw_text.strip().isascii() and a.raw_text.strip()]
        likely = max(drawn, key=lambda a: a.token_logprobs[0])
        ((logprob,),) = engine.next_token_logprobs(PROMPTS[:1], [likely.raw_text])
        # The last bit of a bfloat16 logit near 20 is 0.125, and batches of two shapes differ by it.
        assert logprob == pytest.approx(likely.token_logprobs[0], abs=0.3)
