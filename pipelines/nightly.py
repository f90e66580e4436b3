"""What `sgpu score` does: settings from a file, flags and overrides; the days scored, each with its page.

Without Dagster, so that a night that finds nothing new is over before anything large is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sgpu.report.daily import PAGE, update_daily_page
from sgpu.scoring.day import score_days
from sgpu.scoring.outcome import exit_code
from sgpu.scoring.settings import ScoreSettings
from sgpu.study.file import override, read_tree, validated

NIGHTLY = Path(__file__).parent / "nightly.yaml"


def score_settings(file: Path | None, flags: dict[str, Any], overrides: Sequence[str] = ()) -> ScoreSettings:
    """Settings from a file, flags and ``a.b=value`` overrides; what comes later wins.

    UsageError names the key that is wrong.
    """
    tree = read_tree(file, what="settings file") if file else {}
    # A section that the file begins and a flag goes on with, such as `resample`, is one section.
    sections = {
        key: tree[key] | value
        for key, value in flags.items()
        if isinstance(value, dict) and isinstance(tree.get(key), dict)
    }
    tree |= flags | sections
    override(tree, overrides)
    return validated(ScoreSettings, tree, f"settings file {file}" if file else "command line")


def score_logs(file: Path | None, flags: dict[str, Any], overrides: Sequence[str] = ()) -> int:
    """Run `sgpu score` and return its exit code.

    Without a date the day is yesterday, and records without a time have no day.
    """
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    given = {"undated": True} if "date" in flags else {"date": yesterday}
    settings = score_settings(file, flags | given, overrides)
    results = score_days(settings, on_summary=update_daily_page)
    for result in results:
        if result.folder is not None and result.status == "committed":
            print(result.folder / PAGE)
    return exit_code(results, settings.date)
