"""What docs/hooks.py makes: every setting from the schema, and the picture of the layers that are held."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from sgpu.study.benchmark import Study
from sgpu.study.specs import Strict
from sgpu.study.transfer import TransferStudy
from tests.test_architecture import LAYERS

ROOT = Path(__file__).resolve().parent.parent
HOOKS = runpy.run_path(str(ROOT / "docs" / "hooks.py"))


def made(page: str) -> str:
    """The page as MkDocs gets it."""
    text: str = HOOKS["on_page_markdown"]((ROOT / "docs" / page).read_text("utf-8"))
    return text


@pytest.mark.parametrize("study", [Study, TransferStudy])
def test_every_setting_stands_in_the_table_of_its_section(study: type[Strict]) -> None:
    schema = study.model_json_schema()
    tables = {part.split("{#")[1].split("}")[0]: part for part in made("study.md").split("\n### ")[1:]}
    for section, values in {study.__name__: schema, **schema["$defs"]}.items():
        table = tables[f"{study.__name__}-{section}".lower()]
        assert [row[1] for row in re.finditer(r"^\| `(\w+)` \|", table, re.MULTILINE)] == [
            *values["properties"]
        ]


@pytest.mark.parametrize(
    "row",
    [
        "| `timeout` | number, > 0 | `600.0` | seconds for one try |",
        "| `validation_share` | number, > 0, < 0.5 | `0.15` |  |",
        "| `kind` | `responses` | required |  |",
        "| `judge` | [JudgeSpec](#study-judgespec) | none |  |",
    ],
)
def test_a_row_says_what_a_setting_takes_and_its_default(row: str) -> None:
    assert row in made("study.md")


def test_the_picture_has_each_unit_once_and_the_layers_from_the_top_down() -> None:
    drawn = re.findall(r'<text x="[\d.]+" y="(\d+)"[^>]*>([\w.]+)</text>', made("developing.md"))
    assert [name for _, name in drawn] == [unit.removeprefix("sgpu.") for units in LAYERS for unit in units]
    heights = [int(y) for y, _ in drawn]
    assert heights == sorted(heights)
    assert len(set(heights)) == len(LAYERS)


def test_every_package_of_the_picture_says_what_it_is() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", made("developing.md"), re.MULTILINE)
    assert [unit for unit, about in rows if about.strip()] == [unit for units in LAYERS for unit in units]


def test_links_become_those_of_the_site() -> None:
    rewritten = HOOKS["on_page_markdown"]("[a](docs/data.md) [b](../infra/README.md) [c](../README.md#start)")
    assert rewritten == "[a](data.md) [b](infra/README.md) [c](index.md#start)"


def test_the_pages_are_built_strictly_before_the_tests() -> None:
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text("utf-8")
    steps = (ROOT / ".ci" / "run").read_text("utf-8")
    assert 0 < steps.index("make docs") < steps.index("make test")
