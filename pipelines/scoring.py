"""The nightly workflow: one asset, a day of logs a partition, with checks, a schedule and a freshness policy.

`make nightly-dag` shows it. SGPU_NIGHTLY names the YAML file of `sgpu.scoring.settings.ScoreSettings` without
a date (default: pipelines/nightly.yaml), SGPU_FIRST_DAY the first day that can be scored.
"""

# No postponed annotations here: Dagster reads the types of `context` at definition.

import os
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import dagster as dg

from pipelines.nightly import NIGHTLY, score_settings
from sgpu.errors import SgpuError, StageError
from sgpu.logs.accounting import Accounting
from sgpu.report.daily import PAGE, update_daily_page
from sgpu.scoring.day import score_days
from sgpu.scoring.outcome import DayResult
from sgpu.scoring.settings import ScoreSettings
from sgpu.storage.location import Location
from sgpu.watch.history import read_summary
from sgpu.watch.verdict import Verdict

FIRST_DAY = "2026-01-01"
# Waits of 1, 2, 4, 8 and 16 minutes: storage and MLflow come back within that, or a person has to look.
RETRY = dg.RetryPolicy(max_retries=5, delay=60, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
# Logs of a day are complete soon after midnight; the rest comes in as late data on the next nights.
HOUR, MINUTE = 2, 0
DEADLINE = dg.FreshnessPolicy.cron(
    deadline_cron="0 6 * * *", lower_bound_delta=timedelta(hours=6), timezone="UTC"
)
# One day at a time: neighbouring days look at each other's request ids.
POOL = "sgpu_scores"


class NightlyResource(dg.ConfigurableResource):
    """A YAML file of score settings; the partition gives the date."""

    settings: str

    def of(self, day: date) -> ScoreSettings:
        """What `sgpu score --date` would be asked to do. UsageError names the key that is wrong."""
        return score_settings(Path(self.settings), {"date": day.isoformat()})


def scored(settings: ScoreSettings) -> list[DayResult]:
    """Score the days; a deliberate error that trying again cannot change ends the asset at once."""
    try:
        return score_days(settings, on_summary=update_daily_page)
    except SgpuError as error:
        raise dg.Failure(description=str(error), allow_retries=isinstance(error, StageError)) from error


def report_day(settings: ScoreSettings, results: Sequence[DayResult]) -> dg.MaterializeResult:
    """Report counts of the partition's own day, which is the last one, and the checks of what was found."""
    day = results[-1]
    counts = day.accounting
    assert counts is not None and day.run_key is not None and day.folder is not None
    return dg.MaterializeResult(
        metadata={
            "rows_in": counts.rows_in,
            "requests_scored": counts.requests_scored,
            "already_scored": counts.already,
            "quarantined": counts.quarantined,
            "scoreable_share": counts.scoreable_share,
            "reasons": dg.MetadataValue.json(dict(counts.by_reason)),
            "page": dg.MetadataValue.path(str(day.folder / PAGE)),
            "days": dg.MetadataValue.json({str(r.day): r.level or r.status for r in results}),
        },
        data_version=dg.DataVersion(day.run_key),
        check_results=[_bad_rows(settings, day), _watch(settings, day)],
    )


def _bad_rows(settings: ScoreSettings, day: DayResult) -> dg.AssetCheckResult:
    counts = day.accounting or Accounting()
    return dg.AssetCheckResult(
        check_name="bad_rows",
        passed=not day.too_bad,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata={
            "share": counts.bad_share,
            "bound": settings.max_bad,
            "file_share": counts.bad_file_share,
            "file_bound": settings.max_bad_files,
        },
    )


def _watch(settings: ScoreSettings, day: DayResult) -> dg.AssetCheckResult:
    summary = read_summary(Location.of(settings.out), day.day)
    findings = Verdict.from_json(summary["verdict"]).findings if summary else ()
    texts = [finding.text for finding in findings if finding.level != "green"]
    return dg.AssetCheckResult(
        check_name="watch",
        passed=day.level == "green",
        severity=dg.AssetCheckSeverity.ERROR if day.level == "red" else dg.AssetCheckSeverity.WARN,
        metadata={"level": day.level or "", "findings": dg.MetadataValue.json(texts)},
    )


CHECKS = [
    dg.AssetCheckSpec(
        "bad_rows", asset="scores", description="Faulty rows and files are within their bounds."
    ),
    dg.AssetCheckSpec("watch", asset="scores", description="The day looks like the days before it."),
]


def build_nightly(first_day: str) -> dg.Definitions:
    """Build the asset with its checks, job and schedule; a backfill is the asset over a range of days."""
    days = dg.DailyPartitionsDefinition(start_date=first_day, timezone="UTC")

    @dg.asset(
        partitions_def=days,
        retry_policy=RETRY,
        group_name="nightly",
        kinds={"ray", "deltalake"},
        pool=POOL,
        freshness_policy=DEADLINE,
        check_specs=CHECKS,
    )
    def scores(context: dg.AssetExecutionContext, nightly: NightlyResource) -> dg.MaterializeResult:
        """Scores of one day of production logs, each request once; late days are looked at again."""
        settings = nightly.of(date.fromisoformat(context.partition_key))
        return report_day(settings, scored(settings))

    job = dg.define_asset_job("nightly_scores", selection=[scores])
    schedule = dg.build_schedule_from_partitioned_job(
        job,
        hour_of_day=HOUR,
        minute_of_hour=MINUTE,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Every night: the day that has just ended.",
    )
    settings = os.environ.get("SGPU_NIGHTLY", str(NIGHTLY))
    return dg.Definitions(
        assets=[scores],
        jobs=[job],
        schedules=[schedule],
        resources={"nightly": NightlyResource(settings=settings)},
    )


defs = build_nightly(os.environ.get("SGPU_FIRST_DAY", FIRST_DAY))
