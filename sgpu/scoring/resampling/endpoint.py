"""One question to a server that speaks OpenAI's chat protocol, with retries and bounds on what comes back.

What the server says of an error may repeat the question: of errors only their kind and number are told. Every
try that reached the server is put on its cost, also one whose answers cannot be used: it has to be paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import openai

from sgpu.engines.base import Tokens
from sgpu.engines.bounded_http import RateLimit, TooLargeError
from sgpu.engines.chat_calls import ChatClient, FailedCallError, tokens_used
from sgpu.logs.records import Rejected, SampledAnswer
from sgpu.logs.rows.answers import Request, answers_of, assemble
from sgpu.logs.rows.fields import RowFault, parsed
from sgpu.logs.rows.question import Messages
from sgpu.scoring.resampling.budget import RequestCost
from sgpu.scoring.settings import ResampleSettings

MAX_BYTES = 32 * 2**20  # of one reply
_KEY = "Idempotency-Key"


class Cause(StrEnum):
    """Why there are no new answers."""

    OVER_BUDGET = "over_budget"
    PROMPT = "prompt_not_usable"
    REFUSED = "refused_by_endpoint"
    UNAVAILABLE = "endpoint_unavailable"
    ANSWERS = "no_usable_answers"


class EndpointError(Exception):
    """No answers; ``detail`` holds nothing that the server or the log wrote."""

    def __init__(self, cause: Cause, detail: str, *, lasting: bool = False) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail
        self.lasting = lasting  # the next request is likely to fail as well


@dataclass(frozen=True, slots=True)
class Reply:
    """The usable answers, and why others are not."""

    samples: tuple[SampledAnswer, ...]
    dropped: tuple[str, ...]


class Endpoint:
    """A server; its requests, retries included, are spaced as the settings say."""

    def __init__(self, settings: ResampleSettings) -> None:
        """Raises UsageError as `ChatClient`."""
        self._settings = settings
        self._client = ChatClient(
            settings.base_url,
            settings.api_key_env,
            retries=settings.max_retries,
            timeout_s=settings.timeout_s,
            max_bytes=MAX_BYTES,
            limit=RateLimit(settings.requests_per_minute) if settings.requests_per_minute else None,
        )

    def ask(self, messages: Messages, model: str, seed: int, key: str, cost: RequestCost) -> Reply:
        """``n`` answers. ``key`` marks the request, for servers that know that one is repeated.

        What it cost is put on ``cost``, also if it raises EndpointError.
        """
        body = self._settings.model_dump(include={"n", "temperature", "top_p", "max_tokens"})
        body |= {"model": model, "messages": messages, "seed": seed, "extra_headers": {_KEY: key}}
        try:
            reply = self._client.create(
                body,
                (cost.question, cost.most - cost.question),
                lambda raw: _reply(raw.http_response.content, self._settings.n),
                account=cost,
                may_repeat=lambda: cost.allows_another_try,
            )
        except FailedCallError as failure:
            raise self._explained(failure.error, failure.tries) from None
        if isinstance(reply, EndpointError):
            raise reply
        return reply

    def close(self) -> None:
        self._client.close()

    def _explained(self, error: openai.OpenAIError, n_tries: int) -> EndpointError:
        tries = f"after {n_tries} tries"
        if isinstance(error, TooLargeError):
            return EndpointError(Cause.ANSWERS, f"the reply is {error}")
        if isinstance(error, openai.APITimeoutError):
            limit = self._settings.timeout_s
            return EndpointError(Cause.UNAVAILABLE, f"no reply within {limit:g} s {tries}", lasting=True)
        if not isinstance(error, openai.APIStatusError):
            return EndpointError(Cause.UNAVAILABLE, f"no connection {tries}", lasting=True)
        status = error.status_code
        if status in (401, 403):
            named = self._settings.api_key_env
            key = f"the key in ${named}" if named else "a request without a key"
            return EndpointError(Cause.REFUSED, f"status {status}: {key} is not accepted", lasting=True)
        if status >= 500 or status in (408, 409, 429):
            return EndpointError(Cause.UNAVAILABLE, f"status {status} {tries}", lasting=True)
        return EndpointError(Cause.REFUSED, f"status {status}")


def _reply(payload: bytes, n: int) -> tuple[Reply | EndpointError, Tokens | None]:
    """The usable answers among the first ``n``, by the rules for logged ones; the tokens that it tells."""
    used: Tokens | None = None
    try:
        body = parsed(payload.decode())
        if not isinstance(body, Mapping):
            return EndpointError(Cause.ANSWERS, "the reply is no JSON object"), None
        used = tokens_used(body.get("usage"))
        answers = answers_of(body)
        assembled = assemble(Request("", 0, "", None, answers[:n], n_requested=n))
    except UnicodeDecodeError:
        return EndpointError(Cause.ANSWERS, "the reply is not UTF-8"), None
    except RowFault as fault:
        return EndpointError(Cause.ANSWERS, f"the reply cannot be used: {fault.detail}"), used
    if isinstance(assembled, Rejected):
        count = f"{len(answers)} of {n} answers came"
        return EndpointError(Cause.ANSWERS, f"{count}, {assembled.detail}; the server must know `n`"), used
    return Reply(assembled.samples, assembled.dropped), used  # type: ignore[union-attr]
