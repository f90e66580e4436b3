"""A constructed day of logs, and the ways to score it: in this process, or as `sgpu score` in another."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from bench.constructed_logs.__main__ import write_logs
from bench.constructed_logs.settings import LogSettings
from sgpu.report.daily import update_daily_page
from sgpu.scoring.day import score_day
from sgpu.scoring.models.pinning import ScorerSource
from sgpu.scoring.outcome import DayResult
from sgpu.scoring.plan import scoring_folder
from sgpu.scoring.settings import ScoreSettings
from tests.chaos.outcome import DAY
from tests.chaos.runs import Run

KEPT = "tests.chaos.kept_scorer:open_kept"
SGPU = [sys.executable, "-c", "from sgpu.cli import main; main()"]
UNLOCKED = [sys.executable, "-m", "tests.chaos.unlocked"]
# Small parts, so that much can be half done; the bad rows that were planted are to fail nobody.
SMALL = {
    "split_mb": 0.05,
    "bucket_rows": 64,
    "late_days": 0,
    "max_bad": 1.0,
    "tracking": "none",
    "workers": 0,
}


@dataclass(frozen=True)
class Night:
    """``logs`` and the ``model`` (a folder or a URI) that scores them; ``changes`` to the settings."""

    logs: str
    model: str
    changes: dict[str, Any] = field(default_factory=dict)

    def settings(self, out: Path | str, **changes: Any) -> ScoreSettings:
        given = {"logs": self.logs, "model": self.model, "out": str(out), "date": DAY}
        return ScoreSettings(**{**given, **SMALL, **self.changes, **changes})

    def score(self, out: Path | str, day: date = DAY, *, lock: bool = True, **changes: Any) -> DayResult:
        """In this process."""
        settings = self.settings(out, **changes)
        source = ScorerSource(scoring_folder(settings), KEPT)
        return score_day(settings, day, source=source, on_summary=update_daily_page, lock=lock)

    def start(
        self, out: Path, environment: dict[str, str] | None = None, *, lock: bool = True, **changes: Any
    ) -> Run:
        """The command, as a scheduler would start it."""
        out.parent.mkdir(parents=True, exist_ok=True)
        number = len(list(out.parent.glob(f"{out.name}-*.yaml")))
        file = out.parent / f"{out.name}-{number}.yaml"
        file.write_text(yaml.safe_dump(self.settings(out, **changes).model_dump(mode="json")))
        command = [*SGPU, "score", "--date", str(DAY), "--settings"] if lock else UNLOCKED
        return Run(
            [*command, str(file)],
            file.with_suffix(".log"),
            environment or dict(os.environ),
            work=out / "work",
        )


def construct(folder: Path, **settings: Any) -> dict[str, Any]:
    """Write ``folder``/logs; the truth of the day."""
    given = {"rows": 600, "days": (DAY,), "seed": 11, "bad": 0.1, "duplicates": 0.02, "novel": 0.3}
    write_logs(LogSettings.model_validate({**given, **settings}), folder)
    return json.loads((folder / "truth.json").read_text())["days"][str(DAY)]


def copied(logs: Path, to: Path) -> Path:
    """A copy that may be spoiled; times of the files are kept."""
    return Path(shutil.copytree(logs, to, copy_function=shutil.copy2))
