"""A day that is scored, and then judged by other thresholds: a new verdict, and nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sgpu.errors import DataError
from sgpu.scoring.summary import judge_again
from sgpu.storage.location import Location
from tests.scoring.nights import nights
from tests.scoring.nights.nights import DAY, night, row, rows, write


def strict(place: Path) -> str:
    """Bounds that are red for a day of which a request could not be scored."""
    (place / "strict.yaml").write_text("least_scoreable: 0.99\ndays: 5\n")
    return str(place / "strict.yaml")


def test_other_thresholds_judge_a_day_again_without_scoring_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place / "logs", "a.jsonl", [*rows(range(20)), row("broken", ["RAISE", "b"])])
    first = night(place, max_bad=1)
    before, files, summary = nights.versions(place), nights.files(place), nights.summary(place)
    monkeypatch.setattr("sgpu.scoring.parts.StepRun.done", None)
    second = night(place, max_bad=1, thresholds=strict(place))
    assert [(one.status, one.level) for one in (first, second)] == [
        ("committed", "grey"),
        ("unchanged", "red"),
    ]
    assert (second.exit_code, second.scoring_seconds, second.accounting) == (5, 0.0, first.accounting)
    assert (nights.versions(place), nights.files(place)) == (before, files)
    again = nights.summary(place)
    changed = {name for name, value in again.items() if value != summary[name]}
    assert changed == {"verdict", "thresholds", "settings"}
    assert again["verdict"]["level"] == "red" and again["thresholds"]["least_scoreable"] == 0.99


def test_a_day_that_is_judged_again_has_its_page_and_metrics_written_anew(place: Path) -> None:
    write(place / "logs", "a.jsonl", [*rows(range(20)), row("broken", ["RAISE", "b"])])
    folder = place / "out" / "days" / str(DAY)
    night(place, max_bad=1)
    assert "sgpu_score_tested 0.0" in (folder / "metrics.prom").read_text()
    night(place, max_bad=1, thresholds=strict(place))
    text = (folder / "metrics.prom").read_bytes()
    assert b"sgpu_score_level 2.0" in text and (place / "out" / "metrics.prom").read_bytes() == text
    assert "of the 5 days before" in (folder / "index.html").read_text()


def test_a_day_that_is_judged_again_is_tracked_again_and_then_left_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place / "logs", "a.jsonl", [*rows(range(20)), row("broken", ["RAISE", "b"])])
    told: list[float | None] = []

    def log(tracking: str, day: str, out: str, metrics: dict[str, float], tags: dict[str, str]) -> None:
        told.append(metrics.get("level"))

    monkeypatch.setattr("sgpu.scoring.summary.log_to_mlflow", log)
    night(place)
    for _ in range(2):
        night(place, thresholds=strict(place))
    assert told == [None, 2]
    place_of_page = place / "out" / "days" / str(DAY) / "index.html"
    written = place_of_page.stat().st_mtime_ns
    night(place, thresholds=strict(place))
    assert place_of_page.stat().st_mtime_ns == written


def test_a_model_that_is_gone_is_named_where_its_profile_is_needed_again(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(20)))
    night(place)
    plan = SimpleNamespace(
        out=Location.of(place / "out"),
        settings=nights.settings(place, thresholds=strict(place)),
        models=SimpleNamespace(champion=SimpleNamespace(sha256="f00", label="sgpu/3")),
    )
    with pytest.raises(DataError, match="the files of sgpu/3 are gone; run the same command again"):
        judge_again(plan, nights.summary(place), place)  # type: ignore[arg-type]
