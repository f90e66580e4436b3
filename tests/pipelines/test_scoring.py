"""The nightly workflow: what Dagster is told, and that one of its days is one run of `sgpu score`."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import dagster as dg
import pytest

from pipelines import scoring
from sgpu.errors import HeldError, StageError, UsageError
from sgpu.logs.accounting import Accounting
from sgpu.scoring.outcome import DayResult, OnSummary
from sgpu.scoring.settings import ScoreSettings
from sgpu.storage.location import Location

DAY = date(2026, 11, 20)


def result(tmp_path: Path, **changes: object) -> DayResult:
    known = Accounting(rows_in=10, scored_rows=9, quarantined=1, requests_scored=9, by_reason={"not_json": 1})
    made = {"status": "committed", "run_key": "k", "accounting": known, "level": "green", **changes}
    return DayResult(DAY, folder=Location.of(tmp_path), **made)  # type: ignore[arg-type]


def materialise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: object) -> dg.ExecuteInProcessResult:
    asked: list[ScoreSettings] = []

    def score(settings: ScoreSettings, on_summary: OnSummary) -> list[DayResult]:
        asked.append(settings)
        if isinstance(found, Exception):
            raise found
        return [found]  # type: ignore[list-item]

    monkeypatch.setattr(scoring, "score_days", score)
    settings = tmp_path / "nightly.yaml"
    settings.write_text(f"logs: {tmp_path}/logs\nout: {tmp_path}/out\nmodel: m\n")
    definitions = scoring.build_nightly("2026-11-01")
    done = dg.materialize(
        list(definitions.assets or ()),
        partition_key=DAY.isoformat(),
        resources={"nightly": scoring.NightlyResource(settings=str(settings))},
        raise_on_error=False,
    )
    assert [one.date for one in asked] == [DAY]
    return done


def checks(done: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {one.check_name: one.passed for one in done.get_asset_check_evaluations()}


def test_a_green_day_passes_both_checks_and_shows_its_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = materialise(monkeypatch, tmp_path, result(tmp_path))
    assert done.success and checks(done) == {"bad_rows": True, "watch": True}
    (made,) = done.asset_materializations_for_node("scores")
    assert made.metadata["rows_in"].value == 10 and made.metadata["quarantined"].value == 1


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"level": "grey"}, "watch"),
        ({"level": "yellow"}, "watch"),
        ({"level": "red"}, "watch"),
        ({"too_bad": True}, "bad_rows"),
    ],
)
def test_a_day_that_is_not_green_is_committed_and_fails_a_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: dict[str, object], failed: str
) -> None:
    done = materialise(monkeypatch, tmp_path, result(tmp_path, **changes))
    assert done.success
    assert [name for name, passed in checks(done).items() if not passed] == [failed]


@pytest.mark.parametrize(
    ("error", "again"),
    [(StageError("storage"), True), (HeldError("lock"), True), (UsageError("model"), False)],
)
def test_only_what_time_can_repair_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, again: bool
) -> None:
    monkeypatch.setattr(scoring, "score_days", lambda settings, on_summary: (_ for _ in ()).throw(error))
    with pytest.raises(dg.Failure) as raised:
        scoring.scored(ScoreSettings(logs="l", out="o", model="m", date=DAY))
    assert raised.value.allow_retries is again


def test_every_night_the_day_that_has_ended_is_scored() -> None:
    schedule = scoring.defs.resolve_schedule_def("nightly_scores_schedule")
    context = dg.build_schedule_context(
        scheduled_execution_time=datetime(2026, 11, 21, 2, 0, tzinfo=UTC),
        repository_def=scoring.defs.get_repository_def(),
    )
    (request,) = schedule.evaluate_tick(context).run_requests or ()
    assert request.partition_key == "2026-11-20"
