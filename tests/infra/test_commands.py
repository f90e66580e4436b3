"""Every call of our command line in a manifest is one that it understands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from sgpu.cli import app
from tests.infra.manifests import INFRA, KUBERNETES, sgpu_commands

COMMANDS = list(sgpu_commands())
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# A piece of code in a page that is a command of ours, or a flag alone; in an alert every flag is one of ours.
OURS = re.compile(r"`(?:sgpu (?P<command>\w+)(?: (?P<second>\w+))?|(?=--))(?P<rest>[^`]*)`")
GROUP = typer.main.get_command(app)


@pytest.mark.parametrize(("where", "arguments"), COMMANDS, ids=[where for where, _ in COMMANDS])
def test_a_command_line_is_understood(where: str, arguments: list[str]) -> None:
    name, *rest = arguments
    GROUP.commands[name].make_context(name, rest)


def test_a_wrong_option_would_be_found() -> None:
    with pytest.raises(Exception, match="--adress"):
        GROUP.commands["benchmark"].make_context("benchmark", ["study.yaml", "--adress", "auto"])


def flags_of(command: Any) -> set[str]:
    """Those of a command, and of the commands beneath it."""
    parameters = command.get_params(command.context_class(command))
    own = {option for parameter in parameters for option in parameter.opts}
    return own.union(*(flags_of(one) for one in getattr(command, "commands", {}).values()))


def named_flags() -> Iterator[tuple[str, str, str | None]]:
    """Flags of ours in what the cluster's files tell a person: (where, flag, command if it is told)."""
    for group in KUBERNETES["PrometheusRule/sgpu"]["spec"]["groups"]:
        command = "score" if group["name"] == "score" else None
        for rule in group["rules"]:
            for text in rule["annotations"].values():
                yield from ((rule["alert"], flag, command) for flag in FLAG.findall(text))
    for page in sorted(INFRA.glob("*.md")):
        for found in OURS.finditer(page.read_text(encoding="utf-8")):
            yield from ((page.name, flag, found["command"]) for flag in FLAG.findall(found["rest"]))


@pytest.mark.parametrize(("where", "flag", "command"), sorted(set(named_flags()), key=str))
def test_a_flag_that_a_person_is_told_of_exists(where: str, flag: str, command: str | None) -> None:
    assert flag in flags_of(GROUP.commands[command] if command else GROUP), where


def test_the_alert_for_missing_days_names_its_flag() -> None:
    assert ("NoDayScored", "--from", "score") in named_flags()
