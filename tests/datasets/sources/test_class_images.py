"""Class names and their aliases: one class each, in the order of the labels."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sgpu.datasets.sources.class_images import CIFAR_10, IMAGENETTE, ClassName, names
from sgpu.judges.alias import AliasJudge
from sgpu.judges.base import Item
from sgpu.words import positions, words
from tests.datasets.class_fixtures import CIFAR_NAMES, IMAGENETTE_NAMES, WNIDS

TABLES = {"cifar-10": CIFAR_10, "imagenette": tuple(IMAGENETTE.values())}


def judged(items: Iterable[ClassName], name: str, answer: str, broad: bool = False) -> bool | None:
    (item,) = [item for item in items if item.name == name]
    (vote,) = AliasJudge().judge([Item("?", item.references(broad), answer)])
    return vote.correct


def test_the_names_are_those_of_the_sources_in_the_order_of_the_labels() -> None:
    assert names(CIFAR_10) == tuple(CIFAR_NAMES)
    assert names(IMAGENETTE.values()) == tuple(IMAGENETTE_NAMES)
    assert list(IMAGENETTE) == WNIDS


@pytest.mark.parametrize(
    ("table", "name", "answer"),
    [
        ("cifar-10", "airplane", "A plane."),
        ("cifar-10", "airplane", "an aeroplane"),
        ("cifar-10", "automobile", "Car"),
        ("cifar-10", "truck", "It is a lorry."),
        ("imagenette", "chain saw", "a chainsaw"),
        ("imagenette", "gas pump", "petrol pump"),
        ("imagenette", "cassette player", "tape player"),
        ("imagenette", "garbage truck", "a bin lorry"),
        ("imagenette", "English springer", "English Springer Spaniel"),
        ("imagenette", "tench", "a tench (a fish)"),
    ],
)
def test_another_name_of_the_class_is_right(table: str, name: str, answer: str) -> None:
    assert judged(TABLES[table], name, answer) is True


@pytest.mark.parametrize(
    ("table", "name", "answer"),
    [
        ("cifar-10", "truck", "car"),
        ("cifar-10", "cat", "dog"),
        ("imagenette", "tench", "fish"),
        ("imagenette", "English springer", "dog"),
        ("imagenette", "garbage truck", "truck"),
    ],
)
def test_another_class_or_a_wider_term_is_wrong(table: str, name: str, answer: str) -> None:
    assert judged(TABLES[table], name, answer) is False


@pytest.mark.parametrize(("name", "answer"), [("tench", "fish"), ("English springer", "a dog")])
def test_a_wider_term_is_right_where_asked_for(name: str, answer: str) -> None:
    assert judged(TABLES["imagenette"], name, answer, broad=True) is True


@pytest.mark.parametrize("broad", [False, True])
@pytest.mark.parametrize("table", TABLES)
def test_no_reference_of_a_class_stands_in_the_name_or_an_alias_of_another(table: str, broad: bool) -> None:
    shared = [
        (item.name, reference, other.name)
        for item in TABLES[table]
        for other in TABLES[table]
        for reference in item.references(broad)
        if item is not other and any(positions(words(reference), words(name)) for name in other.references())
    ]
    assert shared == []
