"""Samples more answers to requests that were logged with one: for a share of them, within a budget.

Ids and seed alone decide which requests are asked, so a restart makes the same choice. Outcomes are written
to disk before they are used, and calls are paid from an account on disk, so a run that was killed continues
without paying for an answer twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any

from sgpu.engines.base import Tokens
from sgpu.engines.costs import CallCosts, CostsClient, Terms
from sgpu.errors import BudgetError, MissingDependencyError
from sgpu.hashing import SAMPLING_SEED_BITS, canonical_json, derived_seed, sha256_hex
from sgpu.logs.records import Rejected
from sgpu.logs.rows.answers import Request, answers_of, assemble
from sgpu.logs.rows.fields import RowFault, parsed
from sgpu.logs.rows.question import Messages, UnusablePromptError, messages_of
from sgpu.runtime.ledger import Locked, ask
from sgpu.scoring.settings import ResampleSettings
from sgpu.storage.location import Location

try:
    import openai

    from sgpu.engines.bounded_http import RateLimit, TooLargeError
    from sgpu.engines.chat_calls import ChatClient, FailedCallError, tokens_used, worst_case
except ModuleNotFoundError as error:
    raise MissingDependencyError(
        f"sampling from a server needs the package {error.name!r}. Run `pip install openai`."
    ) from error

MAX_BYTES = 32 * 2**20  # of one reply
GIVE_UP_AFTER = 20  # consecutive requests that failed for a reason which the next one is likely to share
_SPAN = 2**64


class Cause(StrEnum):
    """Why there are no new answers."""

    OVER_BUDGET = "over_budget"
    PROMPT = "prompt_not_usable"
    REFUSED = "refused_by_endpoint"
    UNAVAILABLE = "endpoint_unavailable"
    ANSWERS = "no_usable_answers"


class NoNewAnswers(Exception):
    """Why a request has no new answers; ``detail`` holds no text of the log or the server.

    ``lasting``: the next request is likely to fail as well.
    """

    def __init__(self, cause: Cause, detail: str, *, lasting: bool = False) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause, self.detail, self.lasting = cause, detail, lasting


@dataclass(frozen=True, slots=True)
class UnansweredRequest:
    """A request to ask again. ``prompt``: JSON of a text or of chat messages, see `LogRecord.prompt`."""

    request_id: str
    model: str
    prompt: str


Outcome = tuple[str, ...] | NoNewAnswers  # two answers or more


class Resampler:
    """Asks the server of the settings; ``folder`` keeps outcomes and account until scores are published.

    ``run`` names the run: it is bounded by one budget and does not retry a request that failed in it. Answers
    that another run paid for are used. The folder holds answers, so only its owner may read it.
    """

    def __init__(self, settings: ResampleSettings, folder: Location, *, run: str = "run") -> None:
        """Raises UsageError for a missing key."""
        self._settings, self._folder, self._run = settings, folder, run
        self._client = ChatClient(
            settings.base_url,
            settings.api_key_env,
            retries=settings.max_retries,
            timeout_s=settings.timeout_s,
            max_bytes=MAX_BYTES,
            limit=RateLimit(settings.requests_per_minute) if settings.requests_per_minute else None,
        )
        folder.make_private()
        (folder / run).make_folder()
        terms = Terms("resample", tokens=settings.tokens, setting="resample.tokens")
        self._account = CostsClient(partial(ask, Locked(CallCosts(folder / run, terms))))
        self._failures = 0

    def is_chosen(self, request_id: str) -> bool:
        """Return whether the request belongs to the share that is asked."""
        return self._rank(request_id) < self._settings.share * _SPAN

    def answers(self, requests: Sequence[UnansweredRequest]) -> list[Outcome]:
        """Return the outcome of each request, in order; which of them are asked depends on their ids."""
        outcomes: dict[UnansweredRequest, Outcome] = {}
        usable: dict[UnansweredRequest, Messages] = {}
        for request in sorted(set(requests), key=self._order):
            try:
                usable[request] = messages_of(request.prompt)
            except UnusablePromptError as error:
                outcomes[request] = NoNewAnswers(Cause.PROMPT, str(error))
        most = self._settings.requests
        asked = dict(islice(usable.items(), most))
        with ThreadPoolExecutor(self._settings.concurrency, "resample") as pool:
            outcomes |= zip(asked, pool.map(self._answer, asked, asked.values()), strict=True)
        left_out = NoNewAnswers(Cause.OVER_BUDGET, f"this run asks {most} requests; raise resample.requests")
        return [outcomes.get(request, left_out) for request in requests]

    def close(self) -> None:
        self._client.close()

    def _answer(self, request: UnansweredRequest, messages: Messages) -> Outcome:
        settings = self._settings
        body = settings.model_dump(include={"n", "temperature", "top_p", "max_tokens"})
        seed = derived_seed(settings.seed, request.request_id, bits=SAMPLING_SEED_BITS)
        body |= {"model": settings.model or request.model, "messages": messages, "seed": seed}
        about = {"base_url": settings.base_url, "id": request.request_id}
        key = sha256_hex(canonical_json({**body, **about}))
        file = self._folder / key[:2] / f"{key}.json"
        if (kept := _read_outcome(file, self._run)) is not None:
            return kept
        if self._failures >= GIVE_UP_AFTER:
            return NoNewAnswers(Cause.UNAVAILABLE, f"not asked: the {GIVE_UP_AFTER} requests before failed")
        try:
            answers = self._ask(body | {"extra_headers": {"Idempotency-Key": key}})
        except NoNewAnswers as failure:
            self._failures = self._failures + 1 if failure.lasting else 0
            file.write_json({"cause": failure.cause, "detail": failure.detail, "run": self._run})
            return failure
        self._failures = 0
        file.write_json({"answers": answers})
        return answers

    def _ask(self, body: dict[str, Any]) -> tuple[str, ...]:
        """Return the usable answers; every try is paid for, also one that fails. Raises NoNewAnswers."""
        texts = [message["content"] for message in body["messages"]]
        most = worst_case(texts, body["n"], body["max_tokens"])
        try:
            answers = self._client.create(
                body,
                most,
                lambda raw: _read_reply(raw.http_response.content, body["n"]),
                account=self._account,
            )
        except BudgetError as error:
            raise NoNewAnswers(Cause.OVER_BUDGET, str(error)) from None
        except FailedCallError as failure:
            raise self._explain(failure.error, failure.tries) from None
        if isinstance(answers, NoNewAnswers):
            raise answers
        return answers

    def _explain(self, error: openai.OpenAIError, tries: int) -> NoNewAnswers:
        """Return the outcome of a failed call: what a server says of an error may repeat the question."""
        if isinstance(error, TooLargeError):
            return NoNewAnswers(Cause.ANSWERS, f"the reply is {error}")
        if not isinstance(error, openai.APIStatusError):
            late = isinstance(error, openai.APITimeoutError)
            what = f"no reply within {self._settings.timeout_s:g} s" if late else "no connection"
            return NoNewAnswers(Cause.UNAVAILABLE, f"{what} after {tries} tries", lasting=True)
        status = f"status {error.status_code}"
        if error.status_code in (401, 403):
            named = self._settings.api_key_env
            key = f"the key in ${named}" if named else "a request without a key"
            return NoNewAnswers(Cause.REFUSED, f"{status}: {key} is not accepted", lasting=True)
        if error.status_code >= 500 or error.status_code in (408, 409, 429):
            return NoNewAnswers(Cause.UNAVAILABLE, f"{status} after {tries} tries", lasting=True)
        return NoNewAnswers(Cause.REFUSED, status)

    def _order(self, request: UnansweredRequest) -> tuple[int, str, str]:
        return self._rank(request.request_id), request.request_id, request.model

    def _rank(self, request_id: str) -> int:
        text = f"{self._settings.seed}\x1f{request_id}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def _read_outcome(file: Location, run: str) -> Outcome | None:
    """Return what was kept; None where nothing was, where it is damaged, or failed in another run."""
    try:
        kept = file.read_json()
        if "answers" in kept:
            return tuple(map(str, kept["answers"]))
        return NoNewAnswers(Cause(kept["cause"]), kept["detail"]) if kept["run"] == run else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _read_reply(payload: bytes, n: int) -> tuple[Outcome, Tokens | None]:
    """Return the usable answers among the first ``n``, by the rules for logged ones, and the tokens used."""
    used: Tokens | None = None
    try:
        body = parsed(payload.decode())
        if not isinstance(body, Mapping):
            return NoNewAnswers(Cause.ANSWERS, "the reply is not a JSON object"), None
        used = tokens_used(body.get("usage"))
        answers = answers_of(body)
        record = assemble(Request("", 0, "", None, answers[:n], n_requested=n))
    except UnicodeDecodeError:
        return NoNewAnswers(Cause.ANSWERS, "the reply is not UTF-8"), None
    except RowFault as fault:
        return NoNewAnswers(Cause.ANSWERS, f"the reply cannot be used: {fault.detail}"), used
    if isinstance(record, Rejected):
        count = f"{len(answers)} of {n} answers came"
        return NoNewAnswers(Cause.ANSWERS, f"{count}, {record.detail}; the server must know `n`"), used
    return tuple(sample.text for sample in record.samples), used  # type: ignore[union-attr]
