"""Every call of our command line in a manifest is one that it understands."""

from __future__ import annotations

import pytest
import typer

from sgpu.cli import app
from tests.infra.manifests import sgpu_commands

COMMANDS = list(sgpu_commands())
GROUP = typer.main.get_command(app)


def test_the_three_jobs_and_the_night_are_there() -> None:
    assert sorted(arguments[0] for _, arguments in COMMANDS) == [
        "benchmark", "benchmark", "score", "score", "transfer",
    ]  # fmt: skip


@pytest.mark.parametrize(("where", "arguments"), COMMANDS, ids=[where for where, _ in COMMANDS])
def test_a_command_line_is_understood(where: str, arguments: list[str]) -> None:
    name, *rest = arguments
    GROUP.commands[name].make_context(name, rest)


def test_a_wrong_option_would_be_found() -> None:
    with pytest.raises(Exception, match="--adress"):
        GROUP.commands["benchmark"].make_context("benchmark", ["study.yaml", "--adress", "auto"])
