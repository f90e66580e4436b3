"""Sampling from a server that speaks the OpenAI chat protocol: vLLM, SGLang, TGI, or a hosted model."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sgpu.addresses import exposes_key, without_credentials
from sgpu.engines.base import Answer, EngineConfig, Generation, Prompt, Sampling
from sgpu.engines.clean import clean_answer
from sgpu.engines.prompts import prompt_sha256
from sgpu.engines.rate import RateLimit
from sgpu.errors import UsageError

MAX_RETRIES = 8
TOP_LOGPROBS = 20  # the most that the protocol allows
MAX_BYTES = 128 * 2**20  # of one reply: 128 answers of 4096 tokens with their log-probabilities take 80

T = TypeVar("T")


class OpenAIEngine:
    """Implements `sgpu.engines.base.Engine`.

    ``EngineConfig.options``: ``concurrency`` (requests at once, 16), ``max_retries`` (8; with back-off, for
    429, 5xx and lost connections), ``timeout`` (seconds for one request, 600), and ``vllm_fields`` (True:
    send top_k, repetition_penalty and return_token_ids, which hosted models refuse). The prompt is
    rendered by the server, so ``prompt_sha256`` is of the model name and the messages. A refusal has the
    finish reason ``refusal`` and its words in ``raw_text``; see NO_ANSWER. Redirects are not followed.
    """

    name = "openai"

    def __init__(self, config: EngineConfig, *, http_client: Any = None) -> None:
        """Raises UsageError for an unset ``api_key_env``, and for a key that others could read on its way."""
        import openai

        from sgpu.engines.bounded_http import UNPACKED, Bounds

        self.config = config
        self._server = without_credentials(config.base_url or "the server")  # as it is shown
        if config.api_key_env and exposes_key(config.base_url or ""):
            raise UsageError(
                f"the key in ${config.api_key_env} would travel unencrypted to {self._server}: use https://, "
                "or a tunnel to 127.0.0.1"
            )
        options = config.options
        self._vllm_fields = bool(options.get("vllm_fields", True))
        limit = RateLimit(config.requests_per_minute) if config.requests_per_minute else None
        timeout = float(str(options.get("timeout", 600)))
        http_client = http_client or openai.DefaultHttpxClient()
        # Hooks of the HTTP client, so that retries count against the rate as well.
        Bounds(MAX_BYTES, timeout, limit).keep(http_client)
        self._client = openai.OpenAI(
            base_url=config.base_url,
            api_key=_api_key(config),
            max_retries=int(str(options.get("max_retries", MAX_RETRIES))),
            timeout=timeout,
            default_headers=UNPACKED,
            http_client=http_client,
        )
        self._pool = ThreadPoolExecutor(int(str(options.get("concurrency", 16))), "openai-engine")

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        """See `sgpu.engines.base.Engine.sample`. Raises ValueError if the server ignores ``n``."""
        # vLLM refuses n > 1 at temperature 0, where all answers are the same anyway.
        n_drawn = sampling.n if sampling.temperature > 0 else 1
        fields: dict[str, Any] = {
            "n": n_drawn,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "stop": list(sampling.stop) or None,
            "logprobs": True,
        }
        if self._vllm_fields:
            fields["extra_body"] = {
                "top_k": sampling.top_k,
                "repetition_penalty": sampling.repetition_penalty,
                "return_token_ids": True,
            }

        def one(prompt: Prompt) -> Generation:
            reply = self._complete(prompt, seed=prompt.seed, **fields)
            choices = sorted(reply.choices, key=lambda choice: choice.index)
            if len(choices) != n_drawn:
                raise ValueError(
                    f"{self._server} gave {len(choices)} answers to a request for {n_drawn}; "
                    "it does not support `n`. Use vLLM or another server that does."
                )
            answers = tuple(_answer(choice, sampling.stop) for choice in choices)
            return Generation(
                prompt_sha256=self._sha256(prompt),
                answers=answers * (sampling.n // n_drawn),
                n_prompt_tokens=reply.usage.prompt_tokens if reply.usage else 0,
            )

        return self._for_each(one, prompts)

    def next_token_logprobs(self, prompts: Sequence[Prompt], candidates: Sequence[str]) -> list[list[float]]:
        """See `sgpu.engines.base.Engine.next_token_logprobs`.

        The protocol gives the 20 most likely tokens; a candidate that is not among them gets ``-inf``.
        """

        def one(prompt: Prompt) -> list[float]:
            reply = self._complete(
                prompt, max_tokens=1, temperature=0.0, logprobs=True, top_logprobs=TOP_LOGPROBS
            )
            logprobs = reply.choices[0].logprobs
            if logprobs is None or not logprobs.content:
                raise ValueError(f"{self._server} gives no log-probabilities for {self.config.model}")
            found = {item.token: float(item.logprob) for item in logprobs.content[0].top_logprobs}
            return [found.get(candidate, float("-inf")) for candidate in candidates]

        return self._for_each(one, prompts)

    def close(self) -> None:
        """See `sgpu.engines.base.Engine.close`."""
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def _for_each(self, one: Callable[[Prompt], T], prompts: Sequence[Prompt]) -> list[T]:
        return list(self._pool.map(one, prompts))

    def _complete(self, prompt: Prompt, **fields: Any) -> Any:
        import openai

        from sgpu.engines.bounded_http import TooLargeError

        if not prompt.messages:
            raise ValueError(f"the prompt with seed {prompt.seed} has no messages")
        try:
            return self._client.chat.completions.create(
                model=self.config.model, messages=_messages(prompt), **fields
            )
        except openai.BadRequestError as error:
            raise ValueError(
                f"{self._server} refused the prompt {prompt.messages[-1][1][:80]!r}: {error.message[:300]}"
            ) from error
        except openai.AuthenticationError as error:
            raise UsageError(
                f"{self._server} did not accept the key in ${self.config.api_key_env}"
            ) from error
        except openai.APIStatusError as error:
            if not error.response.has_redirect_location:
                raise
            target = without_credentials(error.response.headers["location"])
            raise UsageError(
                f"{self._server} sends its requests on to {target}, where the questions would follow; if you "
                "trust that server, set its address as base_url"
            ) from error
        except TooLargeError as error:
            raise ValueError(
                f"the reply of {self._server} is {error}; ask for fewer or shorter answers"
            ) from error

    def _sha256(self, prompt: Prompt) -> str:
        return prompt_sha256(json.dumps([self.config.model, prompt.messages]), prompt.image)


def _api_key(config: EngineConfig) -> str:
    if config.api_key_env is None:
        return "none"  # local servers ask for none, the client insists on one
    key = os.environ.get(config.api_key_env)
    if not key:
        raise UsageError(f"the environment variable {config.api_key_env}, named by api_key_env, is not set")
    return key


def _messages(prompt: Prompt) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in prompt.messages]
    if prompt.image is not None:
        url = f"data:{_mime_type(prompt.image)};base64,{base64.b64encode(prompt.image).decode()}"
        messages[-1]["content"] = [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": messages[-1]["content"]},
        ]
    return messages


def _mime_type(image: bytes) -> str:
    from PIL import Image

    with Image.open(io.BytesIO(image)) as opened:
        return str(opened.get_format_mimetype())


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
