"""Question pools of the study, one function for each family; facts come from packages.

Everything is drawn by a seed that depends on the family, so that the pools are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from random import Random

from sgpu.datasets.base import LoadRequest
from sgpu.datasets.sources.worldfacts import load_countries, load_worldfacts, mentions, unique
from sgpu.words import words

LANGUAGES = ("de", "fr", "es", "it", "pt", "nl", "pl", "sv")  # of the accepted names in paraphrased cells
UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
CONTINENTS = ("Africa", "Asia", "Europe", "South America", "North America", "Oceania")
MIN_REGION_COUNTRY = 20_000_000  # people; regions of smaller countries are hardly in any text


@dataclass(frozen=True)
class Asked:
    """A question with all answers that count as right."""

    question_id: str
    question: str
    references: tuple[str, ...]


def cities() -> list[Asked]:
    """Return cities whose country is asked for, from famous to obscure."""
    pool = load_worldfacts(
        LoadRequest(options={"kinds": ["city"], "min_population": 300_000, "max_share": 1.0})
    )
    chosen = sorted(pool.pools["all"], key=lambda q: (-q.meta["popularity"], q.question_id))
    return [Asked(q.question_id, q.text, q.references) for q in chosen]


def capitals() -> list[Asked]:
    """Return countries whose capital is asked for."""
    pool = load_worldfacts(LoadRequest(options={"kinds": ["capital"], "max_share": 1.0}))
    return [Asked(q.question_id, q.text, q.references) for q in pool.pools["all"]]


def languages() -> list[Asked]:
    """Return countries whose most spoken language is asked for; every official one is right."""
    from babel import Locale
    from babel.languages import get_territory_language_info

    names, asked = Locale("en").languages, []
    for country in load_countries().values():
        spoken = get_territory_language_info(country.iso)
        official = [code for code, info in spoken.items() if info["official_status"]]
        most = sorted(spoken, key=lambda code: -spoken[code]["population_percent"])[:1]
        accepted = unique(names[code] for code in [*most, *official] if code in names)
        usable = tuple(name for name in accepted if not mentions(country.in_text, name))
        if usable:
            text = f"What is the most spoken language of {country.in_text}?"
            asked.append(Asked(f"language:{country.iso}", text, usable))
    return asked


def regions() -> list[Asked]:
    """Return first-level divisions of large countries whose country is asked for."""
    import pycountry

    countries, homes = load_countries(), {}
    for part in pycountry.subdivisions:
        homes.setdefault(words(part.name), set()).add(part.country_code)
    asked = []
    for part in sorted(pycountry.subdivisions, key=lambda part: str(part.code)):
        country = countries.get(part.country_code)
        if not country or country.population < MIN_REGION_COUNTRY or part.parent_code or country.confusable:
            continue
        if len(homes[words(part.name)]) > 1 or any(mentions(part.name, name) for name in country.names):
            continue
        if part.name.isascii() and "," not in part.name and "(" not in part.name:
            text = f"In which country is the region of {part.name}?"
            asked.append(Asked(f"region:{part.code}", text, country.names))
    return _shuffled(asked, "regions")


def sums() -> list[Asked]:
    """Return sums of two numbers up to 20."""
    pairs = [(a, b) for a in range(1, 21) for b in range(1, 21)]
    return _shuffled(
        [Asked(f"sum:{a}+{b}", f"What is {a} + {b}?", number_names(a + b)) for a, b in pairs], "sums"
    )


def next_numbers() -> list[Asked]:
    """Return numbers whose neighbour is asked for, in digits and in words."""
    asked = []
    for n in range(2, 99):
        for side, found in (("after", n + 1), ("before", n - 1)):
            for form, shown in (("digits", str(n)), ("words", number_names(n)[1])):
                text, names = f"Which number comes directly {side} {shown}?", number_names(found)
                if not any(mentions(text, name) for name in names):  # "thirty" stands in "thirty-one"
                    asked.append(Asked(f"next:{side}:{n}:{form}", text, names))
    return _shuffled(asked, "next")


def yes_no() -> list[Asked]:
    """Return whether a country is on a continent; half of them are not."""
    asked = []
    for country in load_countries().values():
        own = [name for name in CONTINENTS if name in country.continents]
        others = [name for name in CONTINENTS if name not in own]
        if len(own) == 1:
            wrong = Random(f"yes-no/{country.iso}").choice(others)
            for shown, answer in ((own[0], "Yes"), (wrong, "No")):
                text = f"Is {country.in_text} a country in {shown}?"
                asked.append(Asked(f"yes-no:{country.iso}:{answer}", text, (answer,)))
    return _shuffled(asked, "yes-no")


def options() -> list[Asked]:
    """Return the continent of a city, one of four that the question offers; no other cell asks its cities."""
    homes = {country.names[0]: country for country in load_countries().values()}
    asked = []
    for one in cities()[600:]:
        country = homes[one.references[0]]
        others = [name for name in CONTINENTS if name not in country.continents]
        draw = Random(f"options/{one.question_id}")
        own = next(name for name in CONTINENTS if name in country.continents)
        offered = draw.sample([own, *draw.sample(others, 3)], 4)
        text = f"Is {_city(one)} in {', '.join(offered[:3])} or {offered[3]}?"
        asked.append(Asked(f"options:{one.question_id}", text, country.continents))
    return asked


def larger() -> list[Asked]:
    """Return which of two numbers of three digits is larger."""
    draw, asked = Random("larger"), {}
    while len(asked) < 400:
        a, b = draw.sample(range(100, 1000), 2)
        asked[a, b] = Asked(f"larger:{a}:{b}", f"Which number is larger, {a} or {b}?", (str(max(a, b)),))
    return list(asked.values())


def neighbours() -> list[Asked]:
    """Return countries of which any neighbour is asked for."""
    import pycountry
    from countryinfo import CountryInfo

    countries, asked = load_countries(), []
    for country in countries.values():
        found = [pycountry.countries.get(alpha_3=code) for code in CountryInfo(country.iso).info()["borders"]]
        near = [countries[one.alpha_2] for one in found if one and one.alpha_2 in countries]
        names = tuple(name for one in near for name in one.names if not mentions(country.in_text, name))
        if names:
            text = f"Name a country that borders {country.in_text}."
            asked.append(Asked(f"neighbour:{country.iso}", text, names))
    return asked


def passages() -> list[Asked]:
    """Return questions with a passage before them that contains the answer."""
    asked = []
    for one in cities()[400:600]:
        city = _city(one)
        passage = f"{city} is a city in {one.references[0]}. Many people live in {city} and work there."
        asked.append(Asked(f"passage:{one.question_id}", f"{passage} {one.question}", one.references))
    return asked


@cache
def exonyms() -> dict[str, tuple[str, ...]]:
    """Return the names of countries and languages in eight languages, by their comparable English name."""
    from babel import Locale

    english, found, locales = Locale("en"), {}, [Locale(language) for language in LANGUAGES]
    for kind in ("territories", "languages"):
        for code, name in getattr(english, kind).items():
            others = (getattr(locale, kind).get(code) for locale in locales)
            found[" ".join(words(name))] = unique(other for other in others if other)
    return found


def accepted_names(references: Iterable[str]) -> tuple[str, ...]:
    """Return the references and what they are called in eight languages."""
    given = tuple(references)
    return unique([*given, *(name for one in given for name in exonyms().get(" ".join(words(one)), ()))])


def number_names(n: int) -> tuple[str, str]:
    """Return a number from 0 to 99 in digits and in words."""
    if n < len(UNITS):
        return str(n), UNITS[n]
    tens, unit = divmod(n, 10)
    return str(n), TENS[tens] + (f"-{UNITS[unit]}" if unit else "")


def _city(asked: Asked) -> str:
    return asked.question.removeprefix("In which country is the city of ").removesuffix("?")


def _shuffled(asked: list[Asked], family: str) -> list[Asked]:
    return Random(family).sample(asked, len(asked))
