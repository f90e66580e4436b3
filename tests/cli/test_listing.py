"""`sgpu list`: every kind, for a person and as JSON; with plug-ins in `tests/plugin`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from sgpu import __version__
from sgpu.cli import app
from sgpu.cli.listing import KINDS, listed
from sgpu.errors import UsageError
from sgpu.judges.base import JUDGES

ONE_OF = {
    "methods": "semantic_entropy", "judges": "alias", "engines": "vllm", "datasets": "worldfacts",
    "log-formats": "otel", "encoders": "all-MiniLM-L6-v2", "entailment": "deberta", "kernels": "matern15",
    "models": "smollm2-135m-instruct",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_listed_by_name_with_its_package(kind: str) -> None:
    done = CliRunner().invoke(app, ["list", kind, "--json"])
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == sorted(row["name"] for row in rows)
    (row,) = [row for row in rows if row["name"] == ONE_OF[kind]]
    assert row["about"] and (row["package"], row["version"]) == ("sgpu", __version__)


def test_for_a_person_each_name_has_a_line() -> None:
    lines = CliRunner().invoke(app, ["list", "judges"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == JUDGES.names()


def test_what_a_class_says_of_itself_is_shown_and_not_its_path() -> None:
    about = {row.name: row.about for row in listed("engines")}
    assert about["vllm"].startswith("Samples with vLLM")


def test_an_unknown_kind_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"unknown kind 'judge'\. Did you mean 'judges'.*Known: datasets, "):
        listed("judge")
