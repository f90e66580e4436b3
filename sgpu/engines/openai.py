"""Sampling from a server that speaks the OpenAI chat protocol: vLLM, SGLang, TGI, or a hosted model."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from sgpu.engines.base import Answer, EngineConfig, Generation, Prompt, Sampling, clean_answer
from sgpu.engines.costs import CostsClient
from sgpu.engines.prompts import prompt_sha256

TOP_LOGPROBS = 20  # the most that the protocol allows

T = TypeVar("T")


class OpenAIEngine:
    """Asks a server that speaks the chat API of OpenAI (vLLM, hosted models); see `sgpu.engines.base.Engine`.

    ``EngineConfig.options``: ``concurrency`` (requests at once, 16), ``max_retries`` (8; with back-off, for
    429, 5xx and lost connections), ``timeout`` (seconds for one request, 600), and what is sent:
    ``vllm_fields`` (True: top_k, repetition_penalty and return_token_ids, which hosted models refuse; each
    may be given by itself), ``n``, ``seed`` and ``logprobs`` (True), ``max_completion_tokens`` (False: the
    bound of an answer is called max_tokens). The prompt is rendered by the server, so ``prompt_sha256`` is
    of the model name and the messages. A refusal has the finish reason ``refusal`` and its words in
    ``raw_text``; see NO_ANSWER. A server that refuses or ignores ``n`` is asked once for each answer.
    """

    name = "openai"
    package = "openai"

    def __init__(
        self, config: EngineConfig, *, http_client: Any = None, account: CostsClient | None = None
    ) -> None:
        """Raises UsageError for an unset ``api_key_env``, and for a key that others could read on its way."""
        from sgpu.engines.chat_calls import ChatCalls

        self.config = config
        self._calls = ChatCalls(config, http_client, account)
        self._takes_n = None if config.options.get("n", True) else False
        self._pool = ThreadPoolExecutor(int(str(config.options.get("concurrency", 16))), "openai-engine")
        # Of batches in which a prompt failed: who then asks for them one by one pays for none of them twice.
        self._kept: dict[tuple[Hashable, Prompt], Future[Any]] = {}

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        """See `sgpu.engines.base.Engine.sample`, and for what it raises `ChatCalls.complete`."""
        # vLLM refuses n > 1 at temperature 0, where all answers are the same anyway.
        n_drawn = sampling.n if sampling.temperature > 0 else 1
        fields = self._fields(sampling)

        def generate(prompt: Prompt) -> Generation:
            replies = self._replies(prompt, n_drawn, fields)
            choices = [
                choice
                for reply in replies
                for choice in sorted(reply.choices, key=lambda choice: choice.index)
            ]
            if len(choices) < n_drawn:
                raise ValueError(
                    f"{self._calls.server} gave {len(choices)} answers to {n_drawn} requests for one"
                )
            answers = tuple(_answer(choice, sampling.stop) for choice in choices[:n_drawn])
            return Generation(
                prompt_sha256=prompt_sha256(json.dumps([self.config.model, prompt.messages]), prompt.image),
                answers=answers * (sampling.n // n_drawn),
                n_prompt_tokens=replies[0].usage.prompt_tokens if replies[0].usage else 0,
            )

        return self._for_each(generate, sampling, prompts)

    def _fields(self, sampling: Sampling) -> dict[str, Any]:
        options = self.config.options
        fields: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            self._calls.length_field: sampling.max_tokens,
            "stop": list(sampling.stop) or None,
        }
        if options.get("logprobs", True):
            fields["logprobs"] = True
        every = options.get("vllm_fields", True)
        vllm_fields = {
            "top_k": sampling.top_k,
            "repetition_penalty": sampling.repetition_penalty,
            "return_token_ids": True,
        }
        if sent := {name: value for name, value in vllm_fields.items() if options.get(name, every)}:
            fields["extra_body"] = sent
        return fields

    def _replies(self, prompt: Prompt, n: int, fields: dict[str, Any]) -> list[Any]:
        """Replies that hold ``n`` answers: one, or one for each answer that the server left out."""

        def ask(n: int, answer: int = 0) -> Any:
            seeded = {"seed": prompt.seed + answer} if self.config.options.get("seed", True) else {}
            return self._calls.complete(prompt, **({"n": n} if n > 1 else {}), **seeded, **fields)

        replies, n_received = [], 0
        if n > 1 and self._takes_n is not False:
            try:
                replies.append(ask(n))
            except ValueError:
                if self._takes_n:  # it has taken `n` before: it is the prompt that is refused
                    raise
            n_received = len(replies[0].choices) if replies else 0
            if n_received >= n:
                self._takes_n = True
        replies += [ask(1, answer) for answer in range(n_received, n)]
        if n > 1 and n_received <= 1 and not self._takes_n:
            self._takes_n = False
        return replies

    def next_token_logprobs(self, prompts: Sequence[Prompt], candidates: Sequence[str]) -> list[list[float]]:
        """See `sgpu.engines.base.Engine.next_token_logprobs`.

        The protocol gives the 20 most likely tokens; a candidate that is not among them gets ``-inf``.
        """

        fields: dict[str, Any] = {
            self._calls.length_field: 1, "temperature": 0.0, "logprobs": True, "top_logprobs": TOP_LOGPROBS,
        }  # fmt: skip

        def logprobs_of(prompt: Prompt) -> list[float]:
            reply = self._calls.complete(prompt, **fields)
            logprobs = reply.choices[0].logprobs
            if logprobs is None or not logprobs.content:
                raise ValueError(f"{self._calls.server} gives no log-probabilities for {self.config.model}")
            logprob_of = {item.token: float(item.logprob) for item in logprobs.content[0].top_logprobs}
            return [logprob_of.get(candidate, float("-inf")) for candidate in candidates]

        return self._for_each(logprobs_of, tuple(candidates), prompts)

    def check(self) -> None:
        """Raise UsageError if the server, its key or its model cannot be had."""
        self._calls.check()

    def close(self) -> None:
        """See `sgpu.engines.base.Engine.close`."""
        self._pool.shutdown(cancel_futures=True)
        self._calls.close()

    def _for_each(self, ask: Callable[[Prompt], T], request: Hashable, prompts: Sequence[Prompt]) -> list[T]:
        futures = []
        for prompt in prompts:
            earlier = self._kept.pop((request, prompt), None)
            futures.append(earlier or self._pool.submit(ask, prompt))
        wait(futures)
        if len(prompts) > 1 and any(future.exception() for future in futures):
            self._kept.update(zip([(request, prompt) for prompt in prompts], futures, strict=True))
        return [future.result() for future in futures]


def _answer(choice: Any, stop: Sequence[str]) -> Answer:
    message = choice.message
    tokens = (choice.logprobs.content or []) if choice.logprobs else []
    refused = message.content is None and getattr(message, "refusal", None)
    if refused:
        reason = "refusal"
    elif message.content is None and choice.finish_reason != "content_filter":
        reason = "no_content"
    else:
        reason = str(choice.finish_reason)
    raw_text = refused or message.content or ""
    return Answer(
        text="" if refused else clean_answer(raw_text, stop),
        raw_text=raw_text,
        token_ids=tuple((choice.model_extra or {}).get("token_ids") or ()),
        token_logprobs=tuple(float(token.logprob) for token in tokens),
        finish_reason=reason,
    )
