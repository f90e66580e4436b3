"""Requests that were logged with one answer are asked again, a share of them and within a budget.

Which requests are asked depends on their ids and the seed alone, and each bucket has a part of the budget, so
that neither the order of the work nor a restart changes the choice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from sgpu.errors import MissingDependencyError
from sgpu.logs.chat_messages import Messages, UnusablePromptError, messages_of
from sgpu.logs.records import Sample
from sgpu.scoring.resample_settings import ResampleSettings
from sgpu.scoring.resampling.budget import Bill, Budget, rate_limit
from sgpu.scoring.resampling.journal import Journal, key_of
from sgpu.seeds import derived_seed
from sgpu.storage.location import Location

try:
    from sgpu.scoring.resampling.endpoint import Cause, Endpoint, EndpointError, Reply
except ModuleNotFoundError as error:
    raise MissingDependencyError(
        f"asking a server needs the package {error.name!r}. Run `pip install openai`."
    ) from error

WAVE = 4  # times ``concurrency``: requests that are under way before the budget is looked at again
GIVE_UP_AFTER = 20  # requests in a row that failed although the next might have been answered
_TEMPLATE_TOKENS = 16  # of a chat template, for each message
_SPAN = 2**64


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to ask again. ``prompt``: JSON of a text or of chat messages, see `LogRecord.prompt`."""

    request_id: str
    model: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Resampled:
    """New answers, two at least. ``tokens``: of question and answers in all tries, for the bill."""

    request_id: str
    samples: tuple[Sample, ...]
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
Task = tuple[Asked, Messages, Bill]


class Resampler:
    """Asks the server of the settings. ``journal``: folder where answers are kept until scores are published.

    ``run`` names the run: what failed in it is not tried again, what another run paid for is used.
    ``workers`` processes share ``requests_per_minute``.
    """

    def __init__(
        self, settings: ResampleSettings, journal: Location, *, run: str = "", workers: int = 1
    ) -> None:
        """Raises UsageError for a missing key or a rate below one request a minute for each worker."""
        self._settings = settings
        self._journal = Journal(journal, run)
        self._endpoint = Endpoint(settings, rate_limit(settings.requests_per_minute, workers))
        self._failures = 0

    def is_chosen(self, request_id: str) -> bool:
        """Whether the request is of the share that is asked."""
        return self._rank(request_id) < self._settings.share * _SPAN

    def answers(self, requests: Sequence[Asked], most: int | None = None) -> list[Outcome]:
        """The outcome of each request, in order. At most ``most`` are asked, for their part of the tokens."""
        # After a pause one failure is enough to give up again, one reply to go on.
        self._failures = min(self._failures, GIVE_UP_AFTER - 1)
        left = Budget.of(self._settings, most)
        chosen = sorted({one for one in requests if self.is_chosen(one.request_id)}, key=self._order)
        found: dict[str, Outcome] = {}
        usable = []
        for one in chosen:
            try:
                usable.append((one, messages_of(one.prompt)))
            except UnusablePromptError as error:
                found[one.request_id] = Failed(one.request_id, Cause.PROMPT, str(error))
        with ThreadPoolExecutor(self._settings.concurrency, "resample") as pool:
            for wave in self._waves(usable, left, found):
                for outcome in pool.map(lambda asked: self._answered(*asked), wave):
                    found[outcome.request_id] = outcome
        unasked = f"not of the share of {self._settings.share:g} that is asked again"
        return [
            found.get(one.request_id) or Failed(one.request_id, Cause.NOT_CHOSEN, unasked) for one in requests
        ]

    def close(self) -> None:
        self._endpoint.close()

    def _waves(
        self, usable: Sequence[tuple[Asked, Messages]], left: Budget, found: dict[str, Outcome]
    ) -> Iterator[list[Task]]:
        """Requests that fit into what is left if each costs the most it can; then their cost is taken off.

        Failures cost too: a server whose replies cannot be used, or come too late, is paid for them.
        """
        queue = list(reversed(usable))
        while queue:
            wave: list[Task] = []
            reserved = 0
            while queue and len(wave) < min(WAVE * self._settings.concurrency, left.requests):
                bill = self._bill(queue[-1][1])
                if not left.allows(reserved + bill.most):
                    break
                reserved += bill.most
                wave.append((*queue.pop(), bill))
            if not wave:
                one, messages = queue.pop()
                left_over = "all" if left.tokens is None else left.tokens
                detail = f"left are {left.requests} requests and {left_over} tokens, "
                detail += f"it may use {self._bill(messages).most} tokens"
                found[one.request_id] = Failed(one.request_id, Cause.OVER_BUDGET, detail)
                continue
            left.share_out([bill for _, _, bill in wave])
            yield wave
            left.spend(len(wave), sum(found[one.request_id].tokens for one, _, _ in wave))

    def _answered(self, one: Asked, messages: Messages, bill: Bill) -> Outcome:
        settings = self._settings
        model = settings.model or one.model
        seed = derived_seed(settings.seed, one.request_id)
        asked = settings.model_dump(include={"base_url", "n", "temperature", "top_p", "max_tokens"})
        key = key_of({**asked, "id": one.request_id, "model": model, "messages": messages, "seed": seed})
        if (kept := self._journal.read(key)) is not None:
            return _of_journal(one.request_id, kept)
        if self._failures >= GIVE_UP_AFTER:
            detail = f"not asked: the {GIVE_UP_AFTER} requests before failed"
            return Failed(one.request_id, Cause.UNAVAILABLE, detail)
        try:
            reply = self._endpoint.ask(messages, model, seed, key, bill)
        except EndpointError as error:
            self._failures = self._failures + 1 if error.lasting else 0
            content = {"failed": str(error.cause), "detail": error.detail, "tokens": bill.tokens}
        else:
            self._failures = 0
            content = _to_journal(reply, bill.tokens)
        self._journal.write(key, content)
        return _of_journal(one.request_id, content)

    def _bill(self, messages: Messages) -> Bill:
        """With what a request may cost: no token is shorter than a byte."""
        question = sum(len(one["content"].encode()) + _TEMPLATE_TOKENS for one in messages)
        return Bill(question, question + self._settings.n * self._settings.max_tokens)

    def _order(self, one: Asked) -> tuple[int, str]:
        return self._rank(one.request_id), one.request_id

    def _rank(self, request_id: str) -> int:
        text = f"{self._settings.seed}\x1f{request_id}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def _to_journal(reply: Reply, tokens: int) -> dict[str, Any]:
    return {
        "samples": [asdict(one) for one in reply.samples],
        "dropped": list(reply.dropped),
        "tokens": tokens,
    }


def _of_journal(request_id: str, kept: Mapping[str, Any]) -> Outcome:
    if "failed" in kept:
        # Files of earlier versions do not say what a failure cost.
        return Failed(request_id, Cause(kept["failed"]), kept["detail"], kept.get("tokens", 0))
    samples = tuple(Sample(**one) for one in kept["samples"])
    return Resampled(request_id, samples, tuple(kept["dropped"]), kept["tokens"])


class Unanswered(Protocol):
    """What scoring hands over, see `sgpu.scoring.sets.dedupe.Candidate`."""

    @property
    def request_id(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def prompt(self) -> str | None: ...


class ForScoring:
    """`sgpu.scoring.asking_again.Resampler`: by request id the new texts, or why there are none."""

    def __init__(self, resampler: Resampler) -> None:
        self._resampler = resampler

    def __call__(
        self, unanswered: Sequence[Unanswered], most: int | None = None
    ) -> dict[str, tuple[str, ...] | str]:
        """Requests that are not of the share are left out."""
        asked = [Asked(one.request_id, one.model, one.prompt) for one in unanswered if one.prompt is not None]
        found: dict[str, tuple[str, ...] | str] = {}
        for outcome in self._resampler.answers(asked, most):
            if isinstance(outcome, Resampled):
                found[outcome.request_id] = tuple(sample.text for sample in outcome.samples)
            elif outcome.cause is not Cause.NOT_CHOSEN:
                found[outcome.request_id] = f"{outcome.cause}: {outcome.detail}"
        return found


def make_resampler(
    settings: ResampleSettings, journal: Location, *, run: str = "", workers: int = 1
) -> ForScoring:
    """See `Resampler`."""
    return ForScoring(Resampler(settings, journal, run=run, workers=workers))
