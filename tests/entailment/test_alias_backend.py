"""Entailment by equal words."""

from __future__ import annotations

import pytest

from sgpu.entailment.alias import AliasBackend
from sgpu.entailment.base import BACKENDS, Backend, Pair
from tests.contracts.entailment_contract import QUESTION, EntailmentContract


class TestAliasBackendContract(EntailmentContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return AliasBackend()

    @pytest.fixture
    def same(self) -> Pair:
        return Pair(QUESTION, "The Hague.", "the hague")

    @pytest.fixture
    def different(self) -> Pair:
        return Pair(QUESTION, "The Hague", "Den Haag")


@pytest.mark.parametrize(
    ("premise", "hypothesis", "entails"),
    [
        ("São Paulo", "sao paulo!", True),
        ("1,000", "1000", True),
        ("3.14", "314", False),
        ("Paris", "Paris, France", False),
        ("", "?", True),
        ("", "Paris", False),
    ],
)
def test_equal_words_entail_both_ways_and_others_contradict(
    premise: str, hypothesis: str, entails: bool
) -> None:
    pairs = [Pair("", premise, hypothesis), Pair("", hypothesis, premise)]
    assert AliasBackend().classify(pairs).tolist() == [[1, 0, 0] if entails else [0, 0, 1]] * 2


def test_the_registry_builds_it_without_arguments() -> None:
    assert BACKENDS.get("alias")().name == "alias"
