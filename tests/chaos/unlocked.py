"""`python -m tests.chaos.unlocked SETTINGS.yaml`: scores a day without the lock against a second run."""

from __future__ import annotations

import sys
from pathlib import Path

from pipelines.nightly import score_settings
from sgpu.errors import SgpuError
from sgpu.report.daily import update_daily_page
from sgpu.scoring.day import score_day


def main(file: str) -> int:
    settings = score_settings(Path(file), {})
    try:
        result = score_day(settings, settings.date, on_summary=update_daily_page, lock=False)
    except SgpuError as error:
        print(error, file=sys.stderr)
        return 1
    print(result.status)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
