"""`sgpu score`: what its flags are made of, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from sgpu.cli import app
from sgpu.scoring.settings import Flag, ScoreSettings

NEEDED = ["score", "--logs", "l", "--model", "m", "--out", "o"]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the workflow is called with."""
    flags: dict[str, Any] = {}
    monkeypatch.setattr("pipelines.nightly.score_logs", lambda _file, given, _set: flags.update(given) or 0)
    return flags


def called(*line: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app([*NEEDED, *line])
    return int(ended.value.code or 0)


def test_a_flag_that_is_not_given_leaves_the_setting_alone(given: dict[str, Any]) -> None:
    assert called() == 0
    assert given == {"logs": "l", "model": "m", "out": "o"}


def test_zero_is_a_value_like_any_other(given: dict[str, Any]) -> None:
    assert called("--workers", "0", "--late-days", "0", "--max-bad", "0") == 0
    assert {given[name] for name in ("workers", "late_days", "max_bad")} == {0}


def test_a_flag_reaches_the_setting_that_it_is_made_from(given: dict[str, Any]) -> None:
    assert called("--from", "2026-11-20", "--resample", "http://localhost/v1", "--rescore") == 0
    expected = {"start": "2026-11-20", "resample": {"base_url": "http://localhost/v1"}, "rescore": True}
    assert expected.items() <= given.items()


def test_every_field_with_a_flag_is_an_option_with_its_help() -> None:
    group = typer.main.get_command(app)
    command = group.commands["score"]  # type: ignore[attr-defined]
    options = {option.name: option for option in command.get_params(typer.Context(command))}
    for name, field in ScoreSettings.model_fields.items():
        for flag in (item for item in field.metadata if isinstance(item, Flag)):
            assert options[name].help.startswith(flag.help)
