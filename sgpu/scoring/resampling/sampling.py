"""Requests that were logged with one answer are asked again, a share of them and within a budget.

Which requests are asked depends on their ids and the seed alone, so that no restart changes the choice. What
a server has answered is kept on disk, so that a run that was killed does not pay for it twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from sgpu.errors import MissingDependencyError
from sgpu.hashing import SAMPLING_SEED_BITS, canonical_json, derived_seed, sha256_hex
from sgpu.logs.records import SampledAnswer
from sgpu.logs.rows.question import Messages, UnusablePromptError, messages_of
from sgpu.scoring.resampling.budget import RequestCost, ResampleBudget
from sgpu.scoring.settings import ResampleSettings
from sgpu.storage.location import Location

try:
    from sgpu.engines.chat_calls import worst_case
    from sgpu.scoring.resampling.endpoint import Cause, Endpoint, EndpointError, Reply
except ModuleNotFoundError as error:
    raise MissingDependencyError(
        f"asking a server needs the package {error.name!r}. Run `pip install openai`."
    ) from error

WAVE = 4  # times ``concurrency``: requests that are under way before the budget is looked at again
GIVE_UP_AFTER = 20  # requests in a row that failed although the next might have been answered
_SPAN = 2**64


@dataclass(frozen=True, slots=True)
class UnansweredRequest:
    """A request to ask again. ``prompt``: JSON of a text or of chat messages, see `LogRecord.prompt`."""

    request_id: str
    model: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Resampled:
    """New answers, two at least. ``tokens``: of question and answers in all tries, for the budget."""

    request_id: str
    samples: tuple[SampledAnswer, ...]
    dropped: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a request stays without new answers; ``detail`` holds nothing of the question or the reply.

    ``tokens``: what its tries have cost, or may have cost where the server does not tell.
    """

    request_id: str
    cause: Cause
    detail: str
    tokens: int = 0


Outcome = Resampled | Failed
Task = tuple[UnansweredRequest, Messages, RequestCost]


class Resampler:
    """Asks the server of the settings. ``journal``: folder where answers are kept until scores are published.

    ``run`` names the run: what failed in it is not tried again, what another run paid for is used.
    """

    def __init__(self, settings: ResampleSettings, journal: Location, *, run: str = "") -> None:
        """Raises UsageError for a missing key."""
        self._settings = settings
        self._journal = Journal(journal, run)
        self._endpoint = Endpoint(settings)
        self._failures = 0

    def is_chosen(self, request_id: str) -> bool:
        """Whether the request is of the share that is asked."""
        return self._rank(request_id) < self._settings.share * _SPAN

    def answers(self, requests: Sequence[UnansweredRequest]) -> list[Outcome]:
        """The outcome of each request, in order. Which are asked within the budget depends on their ids."""
        # After a pause one failure is enough to give up again, one reply to go on.
        self._failures = min(self._failures, GIVE_UP_AFTER - 1)
        outcomes: dict[UnansweredRequest, Outcome] = {}
        usable = []
        for request in sorted(set(requests), key=self._order):
            try:
                usable.append((request, messages_of(request.prompt)))
            except UnusablePromptError as error:
                outcomes[request] = Failed(request.request_id, Cause.PROMPT, str(error))
        with ThreadPoolExecutor(self._settings.concurrency, "resample") as pool:
            for wave in self._waves(usable, outcomes):
                answered = pool.map(lambda task: self._answered(*task), wave)
                outcomes |= zip((request for request, _, _ in wave), answered, strict=True)
        return [outcomes[request] for request in requests]

    def close(self) -> None:
        self._endpoint.close()

    def _waves(
        self,
        usable: Sequence[tuple[UnansweredRequest, Messages]],
        outcomes: dict[UnansweredRequest, Outcome],
    ) -> Iterator[list[Task]]:
        """Requests that fit into what is left if each costs the most it can; then their cost is taken off.

        Failures cost too: a server whose replies cannot be used, or come too late, is paid for them.
        """
        left = ResampleBudget(self._settings.requests, self._settings.tokens)
        queue = list(reversed(usable))
        while queue:
            wave: list[Task] = []
            reserved = 0
            while queue and len(wave) < min(WAVE * self._settings.concurrency, left.requests):
                cost = self._cost(queue[-1][1])
                if not left.allows(reserved + cost.most):
                    break
                reserved += cost.most
                wave.append((*queue.pop(), cost))
            if not wave:
                request, messages = queue.pop()
                left_over = "all" if left.tokens is None else left.tokens
                detail = f"left are {left.requests} requests and {left_over} tokens, "
                detail += f"it may use {self._cost(messages).most} tokens"
                outcomes[request] = Failed(request.request_id, Cause.OVER_BUDGET, detail)
                continue
            left.share_out([cost for _, _, cost in wave])
            yield wave
            left.spend(len(wave), sum(outcomes[request].tokens for request, _, _ in wave))

    def _answered(self, request: UnansweredRequest, messages: Messages, cost: RequestCost) -> Outcome:
        settings = self._settings
        model = settings.model or request.model
        parameters = settings.model_dump(include={"base_url", "n", "temperature", "top_p", "max_tokens"})
        seed = derived_seed(settings.seed, request.request_id, bits=SAMPLING_SEED_BITS)
        key = key_of(
            {**parameters, "id": request.request_id, "model": model, "messages": messages, "seed": seed}
        )
        if (kept := self._journal.read(key)) is not None:
            return _of_journal(request.request_id, kept)
        if self._failures >= GIVE_UP_AFTER:
            detail = f"not asked: the {GIVE_UP_AFTER} requests before failed"
            return Failed(request.request_id, Cause.UNAVAILABLE, detail)
        try:
            reply = self._endpoint.ask(messages, model, seed, key, cost)
        except EndpointError as error:
            self._failures = self._failures + 1 if error.lasting else 0
            content = {"failed": str(error.cause), "detail": error.detail, "tokens": cost.tokens}
        else:
            self._failures = 0
            content = _to_journal(reply, cost.tokens)
        self._journal.write(key, content)
        return _of_journal(request.request_id, content)

    def _cost(self, messages: Messages) -> RequestCost:
        """With what a request may cost."""
        texts = [message["content"] for message in messages]
        question, answers = worst_case(texts, self._settings.n, self._settings.max_tokens)
        return RequestCost(question, question + answers)

    def _order(self, request: UnansweredRequest) -> tuple[int, str, str]:
        return self._rank(request.request_id), request.request_id, request.model

    def _rank(self, request_id: str) -> int:
        text = f"{self._settings.seed}\x1f{request_id}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def _to_journal(reply: Reply, tokens: int) -> dict[str, Any]:
    return {
        "samples": [asdict(sample) for sample in reply.samples],
        "dropped": list(reply.dropped),
        "tokens": tokens,
    }


def _of_journal(request_id: str, kept: Mapping[str, Any]) -> Outcome:
    if "failed" in kept:
        return Failed(request_id, Cause(kept["failed"]), kept["detail"], kept["tokens"])
    samples = tuple(SampledAnswer(**sample) for sample in kept["samples"])
    return Resampled(request_id, samples, tuple(kept["dropped"]), kept["tokens"])


VERSION = 1


class Journal:
    """The answers below ``folder``. ``run`` names the run: what failed for another one may be tried again.

    One small file for each request, named by the sha256 of everything that was asked; written whole or not at
    all. A damaged file counts as none: the request is asked again. Failures are kept with the tokens that
    they may have cost, so that a run that goes on counts them too; what was under way when it was killed is
    not known. The files hold answers, so that only their owner may read the folder; who publishes the scores
    deletes it.
    """

    def __init__(self, folder: Location, run: str) -> None:
        self._folder = folder
        self._run = run
        folder.make_private()

    def read(self, key: str) -> dict[str, Any] | None:
        """What was kept under the key; None where there is nothing that can be used."""
        try:
            content = json.loads(self._file(key).read_bytes())
            body, recorded = content["body"], content["sha256"]
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if (
            not isinstance(body, dict)
            or sha256_hex(canonical_json(body)) != recorded
            or body.get("key") != key
        ):
            return None
        return body if "failed" not in body or body.get("run") == self._run else None

    def write(self, key: str, content: Mapping[str, Any]) -> None:
        """Keep what a server gave, before anything is made of it."""
        body = {**content, "key": key, "run": self._run, "version": VERSION}
        file = self._file(key)
        file.parent.make_folder()
        signed = {"body": body, "sha256": sha256_hex(canonical_json(body))}
        file.write_bytes(canonical_json(signed, compact=False).encode())

    def _file(self, key: str) -> Location:
        return self._folder / key[:2] / f"{key}.json"


def key_of(parameters: Mapping[str, Any]) -> str:
    """sha256 of the canonical JSON of all that decides the answers."""
    return sha256_hex(canonical_json({"version": VERSION, **parameters}))
