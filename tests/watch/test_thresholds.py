"""Bounds from a file: partial, typed, with messages that name the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from sgpu.errors import UsageError
from sgpu.watch.thresholds import Levels, Thresholds, TrainingBounds, read_thresholds


def test_a_file_names_only_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "bounds.yaml"
    file.write_text("alpha: 0.05\nhistory:\n  psi: {yellow: 0.2, red: 0.4}\n")
    read = read_thresholds(file)
    assert (read.alpha, read.history.psi) == (0.05, Levels(yellow=0.2, red=0.4))
    assert read.history.ks == Thresholds().history.ks and read.training == TrainingBounds()


def test_without_a_file_or_with_an_empty_one_the_defaults_hold(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    assert read_thresholds(None) == read_thresholds(tmp_path / "empty.yaml") == Thresholds()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alfa: 0.1", "alfa"),
        ("history: {psi: {yellow: 0.5, red: 0.1}}", "history.psi: .*red .* lies below yellow"),
        ("history: {psi: {yellow: 0.5}}", "history.psi.red"),
        ("alpha: 2", "alpha"),
        ("- 1", "the file"),
        ("a: [", "cannot be read"),
        ("!!python/object/apply:os.system [id]", "cannot be read"),
    ],
)
def test_a_wrong_file_is_a_usage_error_that_names_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bounds.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=rf"(?s)bounds\.yaml.*{words}"):
        read_thresholds(file)


def test_an_absent_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_thresholds(tmp_path / "absent.yaml")


def test_bounds_against_training_are_wider_than_against_history() -> None:
    made = Thresholds()
    for name in ("psi", "ks", "mmd", "sizes"):
        history, training = getattr(made.history, name), getattr(made.training, name)
        assert history.yellow < training.yellow and history.red < training.red


def test_thresholds_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Thresholds().alpha = 0.5  # type: ignore[misc]
