"""What is wrong with a study is said before any work: settings of methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgpu.errors import UsageError
from sgpu.methods.base import Method, configured_method
from sgpu.stages.preflight import check_study
from sgpu.study import Study


def study_with(tmp_path: Path, methods: list[str], settings: dict[str, Any]) -> Study:
    (tmp_path / "answers.jsonl").touch()
    datasets = [{"kind": "responses", "path": str(tmp_path / "answers.jsonl")}]
    content = {"datasets": datasets, "methods": methods, "method_settings": settings}
    return Study.model_validate(content | {"entailment": {"backend": "alias"}})


def test_known_settings_pass_and_reach_the_method(tmp_path: Path) -> None:
    settings = {"kernel_language_entropy": {"t": 0.5}, "saplma": {"epochs": 3}}
    check_study(study_with(tmp_path, list(settings), settings))
    method = configured_method("kernel_language_entropy", {"t": 0.5})
    assert isinstance(method, Method) and method.settings["t"] == 0.5


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        (
            "kernel_language_entropy",
            {"time": 1},
            "unknown setting of method 'kernel_language_entropy': 'time'",
        ),
        ("predictive_entropy", {"t": 1}, "Known: none"),
        ("saplma", {"epoch": 3}, "Did you mean 'epochs'"),
        ("saplma", {"seed": 3}, "unknown setting"),
        ("saplma", {"epochs": 0}, "epochs is 0"),
        ("sgpu", {"kernel": "rbf"}, "stand under `classifier`"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, method: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        check_study(study_with(tmp_path, [method], {method: settings}))


def test_settings_of_a_method_that_is_not_asked_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`method_settings` names umpire, but `methods` does not"):
        study_with(tmp_path, ["sgpu"], {"umpire": {"alpha": 1}})


def test_a_probe_needs_the_position_that_it_reads(tmp_path: Path) -> None:
    content = {"datasets": [{"kind": "responses", "path": "x"}], "methods": ["sep"]}
    with pytest.raises(ValueError, match="'sep' reads position 'slt'"):
        Study.model_validate(content | {"hidden": {"positions": ["tbg"]}})
