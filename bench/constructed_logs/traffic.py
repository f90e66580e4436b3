"""Requests of a day: who asked what, what the model answered, and whether that was right.

A request is a function of (seed, day, number) alone, so that one can be delivered twice without being kept.
Questions follow Zipf's law. Whether the answers are right depends on the model, the route and the question,
and right answers agree more often, so that spectra tell something about it.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from itertools import accumulate
from random import Random

from bench.constructed_logs.settings import LogSettings
from sgpu.datasets.base import LoadRequest
from sgpu.datasets.sources.worldfacts import load_worldfacts

MODELS = {"atlas-mini-2026-08": -0.5, "atlas-large-2026-10": 0.9, "compass-7b": 0.2}
ROUTES: dict[str | None, float] = {"support-bot": 0.0, "search": 0.3, "travel": -0.3, None: 0.0}
ZIPF = 1.05
# Wordings of one answer, from the usual to the rare; the last two are of other scripts and directions.
FORMS = (
    "{}",
    "{}.",
    "It is {}.",
    "The answer is {}.",
    "I think it is {}.",
    "{} \N{EARTH GLOBE ASIA-AUSTRALIA}",
    "\u200f{}\u200e",
)
_SALAD = """
    seven quiet maybe lantern invoice harbour if not purple stapler because Tuesday whale under of spreadsheet
    rather gravel fourteen sideways oat minister zip cloudy hence engine toast wherever cactus lend brave"""
SALAD = _SALAD.split()
DAY_MICROSECONDS = 86_400 * 1_000_000


@dataclass(frozen=True, slots=True)
class Request:
    """``micros``: microseconds since 1970, UTC. ``answers``: N texts. ``label``: None where nobody judged."""

    number: int
    request_id: str
    micros: int
    model: str
    route: str | None
    question: str
    answers: tuple[str, ...]
    label: int | None


class Traffic:
    """The requests of one day; see the module."""

    def __init__(self, settings: LogSettings, day: date) -> None:
        self._settings = settings
        self._day = day
        self._midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
        self._facts = facts(settings.seed)

    def request(self, number: int) -> Request:
        """The request of this number, with N answers."""
        settings = self._settings
        random = Random(f"{settings.seed}\x1f{self._day}\x1f{number}")
        place, question, reference, others = self._facts.draw(random)
        model, route = random.choice(tuple(MODELS)), random.choice(tuple(ROUTES))
        n = settings.answers
        if random.random() < settings.other_sizes:
            n = random.choice((max(3, n // 2), 2 * n))
        incoherent = random.random() < settings.incoherent
        ease = MODELS[model] + ROUTES[route] + self._facts.ease[place]
        right = random.random() < (0.1 if incoherent else 1 / (1 + math.exp(-ease)))
        texts = salad(random, n) if incoherent else answers(random, n, reference, others, right)
        if random.random() < settings.novel:
            texts = tuple(f"{text} (see file {self._day:%y%m%d}-{number})" for text in texts)
        return Request(
            number,
            f"req-{self._day:%Y%m%d}-{settings.seed}-{number:08d}",
            self._midnight + random.randrange(DAY_MICROSECONDS),
            model,
            route,
            question,
            texts,
            int(right) if random.random() < settings.labelled else None,
        )


def conflicting(request: Request) -> Request:
    """The same request with other answers, as no honest second delivery would have them."""
    return replace(request, answers=tuple(f"Rather: {text}" for text in request.answers))


def with_own_question(request: Request) -> Request:
    """Asked as nobody else does: single answers to one question would be grouped across requests."""
    return replace(request, question=f"{request.question} (ticket {request.request_id})")


class Facts:
    """The questions of WorldFacts with their wrong answers; ``ease`` (Q,) is the logit of a right answer."""

    def __init__(self, seed: int) -> None:
        pool = load_worldfacts(LoadRequest()).pools["all"]
        order = Random(f"questions\x1f{seed}")
        self._questions = order.sample(list(pool), len(pool))
        self.ease = [order.gauss(0.3, 1.2) for _ in self._questions]

    @cached_property
    def _cumulative(self) -> list[float]:
        return list(accumulate((rank + 1) ** -ZIPF for rank in range(len(self._questions))))

    @cached_property
    def _answers(self) -> dict[str, list[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for question in self._questions:
            found[question.meta["kind"]].add(question.references[0])
        return {kind: sorted(names) for kind, names in found.items()}

    def draw(self, random: Random) -> tuple[int, str, str, list[str]]:
        """Its place, a question, its answer and four wrong ones, the same four each time."""
        place = bisect(self._cumulative, random.random() * self._cumulative[-1])
        question = self._questions[place]
        reference = question.references[0]
        names = self._answers[question.meta["kind"]]
        wrong = [name for name in Random(question.question_id).sample(names, 5) if name != reference]
        return place, question.text, reference, wrong[:4]


@lru_cache(maxsize=1)
def facts(seed: int) -> Facts:
    """Read once: looking up the packages' tables takes a second."""
    return Facts(seed)


def answers(random: Random, n: int, reference: str, others: Sequence[str], right: bool) -> tuple[str, ...]:
    """``n`` wordings of mostly one answer; the model that is right agrees with itself more."""
    main = reference if right else others[0]
    rest = [name for name in (*others, reference) if name != main]
    agreement = random.betavariate(6.0, 1.2) if right else random.betavariate(2.0, 2.5)
    wording = random.uniform(0.05, 0.6)
    chosen = (main if random.random() < agreement else random.choice(rest) for _ in range(n))
    return tuple(FORMS[_rank(random, wording, len(FORMS))].format(name) for name in chosen)


def salad(random: Random, n: int) -> tuple[str, ...]:
    """``n`` answers without sense or agreement."""
    return tuple(" ".join(random.sample(SALAD, random.randint(3, 6))) for _ in range(n))


def _rank(random: Random, step: float, most: int) -> int:
    rank = 0
    while rank < most - 1 and random.random() < step:
        rank += 1
    return rank
