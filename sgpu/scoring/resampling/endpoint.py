"""One question to a server that speaks OpenAI's chat protocol, with retries and bounds on what comes back.

What the server says of an error may repeat the question: of errors only their kind and number are told. Every
try that reached the server is put on a bill, also one whose answers cannot be used: it has to be paid for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import httpx2
import openai

from sgpu.engines.bounded_http import UNPACKED, Bounds, TooLargeError
from sgpu.engines.chat_calls import NOT_REACHED, cost_of_status
from sgpu.engines.rate import RateLimit
from sgpu.errors import UsageError
from sgpu.logs.chat_messages import Messages
from sgpu.logs.records import Rejected, Sample
from sgpu.logs.rows.assembly import Request, assemble
from sgpu.logs.rows.fault import RowFault
from sgpu.logs.rows.json_text import parsed
from sgpu.logs.rows.responses import answers_of
from sgpu.scoring.resample_settings import ResampleSettings
from sgpu.scoring.resampling.budget import Bill

MAX_BYTES = 32 * 2**20  # of one reply
_KEY = "Idempotency-Key"
_MOST_TOLD = 2**53  # no server has counted more tokens than this


class Cause(StrEnum):
    """Why there are no new answers."""

    NOT_CHOSEN = "not_chosen"
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

    samples: tuple[Sample, ...]
    dropped: tuple[str, ...]


class Endpoint:
    """A server. ``limit`` spaces its requests, retries included."""

    def __init__(self, settings: ResampleSettings, limit: RateLimit | None) -> None:
        """Raises UsageError if the variable named by ``api_key_env`` is not set."""
        self._settings = settings
        http = _Billed()
        self._bills = http.bills
        Bounds(MAX_BYTES, settings.timeout_s, limit).keep(http)
        self._client = openai.OpenAI(
            base_url=settings.base_url,
            api_key=_api_key(settings.api_key_env),
            max_retries=settings.max_retries,
            timeout=settings.timeout_s,
            http_client=http,
        )

    def ask(self, messages: Messages, model: str, seed: int, key: str, bill: Bill) -> Reply:
        """``n`` answers. ``key`` marks the request, for servers that know that one is repeated.

        What it cost is put on the ``bill``, also if it raises EndpointError.
        """
        settings = self._settings
        self._bills[key] = bill
        try:
            raw = self._client.chat.completions.with_raw_response.create(
                model=model,
                messages=messages,
                n=settings.n,
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_tokens=settings.max_tokens,
                seed=seed,
                extra_headers={_KEY: key, **UNPACKED},
            )
        except openai.OpenAIError as error:
            raise self._explained(error, bill) from None
        finally:
            del self._bills[key]
        return _reply(raw.http_response.content, settings.n, bill)

    def close(self) -> None:
        self._client.close()

    def _explained(self, error: openai.OpenAIError, bill: Bill) -> EndpointError:
        tries = f"after {bill.tries} tries"
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


class _Billed(openai.DefaultHttpxClient):
    """Puts every failed try on the bill of its request, and ends the tries that the bill does not allow."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.bills: dict[str, Bill] = {}  # by the key that marks the request

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        bill = self.bills[request.headers[_KEY]]
        bill.tries += 1
        try:
            response = super().send(request, **options)
        except NOT_REACHED:
            raise
        except Exception as error:
            bill.add(bill.most)
            if bill.allows_another_try or isinstance(error, openai.OpenAIError):
                raise
            # Errors of the client's own kind it passes on without another try.
            late = isinstance(error, httpx2.TimeoutException)
            kind = openai.APITimeoutError if late else openai.APIConnectionError
            raise kind(request=request) from error
        if not response.is_success:
            bill.add(cost_of_status(response.status_code, 0, bill.question, bill.most))
            if not bill.allows_another_try:
                response.headers["x-should-retry"] = "false"
        return response


def _reply(payload: bytes, n: int, bill: Bill) -> Reply:
    """The usable answers among the first ``n``, by the rules for logged ones. Raises EndpointError."""
    told: int | None = None
    try:
        body = parsed(payload.decode())
        if not isinstance(body, Mapping):
            raise EndpointError(Cause.ANSWERS, "the reply is no JSON object")
        told = _tokens(body.get("usage"))
        answers = answers_of(body)
        found = assemble(Request("", 0, "", None, answers[:n], asked=n))
    except UnicodeDecodeError:
        raise EndpointError(Cause.ANSWERS, "the reply is not UTF-8") from None
    except RowFault as fault:
        raise EndpointError(Cause.ANSWERS, f"the reply cannot be used: {fault.detail}") from None
    finally:
        # A server that does not count is taken to have used all that was asked for.
        bill.add(bill.most if told is None else told)
    if isinstance(found, Rejected):
        given = f"{len(answers)} of {n} answers came"
        raise EndpointError(Cause.ANSWERS, f"{given}, {found.detail}; the server must know `n`")
    return Reply(found.samples, found.dropped)  # type: ignore[union-attr]


def _tokens(usage: Any) -> int | None:
    given = usage if isinstance(usage, Mapping) else {}
    counts = [given.get(name) for name in ("prompt_tokens", "completion_tokens")]
    known = [one for one in counts if isinstance(one, int) and 0 <= one <= _MOST_TOLD]
    return sum(known) if len(known) == len(counts) else None


def _api_key(variable: str | None) -> str:
    if variable is None:
        return "none"  # local servers ask for none, the client insists on one
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"the environment variable {variable}, named by api_key_env, is not set")
    return key
