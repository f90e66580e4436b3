"""The README is short and says how to begin; the tables of docs/ are those of the code.

What a table should be is printed where it differs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from sgpu.datasets.base import DATASETS, Departure
from sgpu.study.benchmark import load_study
from sgpu.study.departures import departures
from sgpu.study.models import MODELS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
DATA_PAGE = (ROOT / "docs" / "data.md").read_text("utf-8")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def model_table() -> str:
    rows = [
        [f"`{card.name}`",
         card.source.replace("embedded:", "package: "), card.licence,
         "gated" if card.gated else "open", card.engine, f"{card.memory_gib:g}"]
        for card in MODELS.values()
    ]  # fmt: skip
    return table(["card", "source", "licence", "access", "engine", "GiB"], rows)


def data_table() -> str:
    cards = [DATASETS.get(name) for name in DATASETS if not DATASETS.entry(name).is_plugin]
    rows = [
        [f"`{card.name}`", card.title,
         "package" if card.packaged else ", ".join(files.repo for files in card.hub) or "`path`",
         ", ".join(f"{pool} {count:,}" for pool, count in card.pools.items()) or "your own",
         card.licence, "gated" if card.gated else "open"]
        for card in sorted(cards, key=lambda card: (card.packaged, card.name))
    ]  # fmt: skip
    return table(["kind", "data set", "source", "labelled rows", "licence", "access"], rows)


def departure_table() -> str:
    found: dict[tuple[str, str], Departure] = {}
    for name in ("paper.yaml", "paper_text.yaml", "paper_ablations.yaml"):
        for departure in departures(load_study(ROOT / "pipelines" / "studies" / name)):
            found.setdefault((departure.topic, departure.choice), departure)
    return table(
        ["what", "the paper", "here", "why"], [[d.topic, d.paper, d.choice, d.why] for d in found.values()]
    )


@pytest.mark.parametrize("wanted", [model_table, data_table, departure_table], ids=lambda f: f.__name__)
def test_the_readme_holds_the_table(wanted: object) -> None:
    expected = wanted()  # type: ignore[operator]
    assert expected in DATA_PAGE, f"docs/data.md should hold:\n\n{expected}\n"


def test_the_readme_is_short() -> None:
    assert len(README.encode()) < 8192


@pytest.mark.parametrize(
    "command",
    [
        "make install",
        "make demo",
        "make test",
        "make docs",
        "sgpu benchmark",
        "sgpu plan",
        "sgpu fit",
        "sgpu score",
    ],
)
def test_the_readme_says_how_to_begin(command: str) -> None:
    assert command in README


def test_the_readme_leads_to_every_page() -> None:
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert pages == set(re.findall(r"\]\((docs/[^)#]+)", README))
