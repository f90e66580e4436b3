"""`python -m bench.constructed_logs --out DIR [...]`, see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench.constructed_logs.day import write_day
from bench.constructed_logs.labelled import write_labelled
from bench.constructed_logs.settings import FORMAT_WEIGHTS, LogSettings
from bench.constructed_logs.truth import PlantedFile


def main(arguments: Sequence[str]) -> int:
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    out, labelled = Path(given.pop("out")), given.pop("labelled_sets")
    try:
        days, formats = _days(given.pop("days")), _formats(given.pop("formats"))
        settings = LogSettings.model_validate({**given, "days": days, "formats": formats})
    except (ValidationError, ValueError) as error:
        parser.error(str(error))
    if (out / "logs").exists():
        parser.error(f"{out / 'logs'} exists; give an empty folder")
    truth = write_logs(settings, out)
    if labelled:
        write_labelled(settings, labelled, out / "labelled.jsonl")
    for day, counts in truth["days"].items():
        print(f"{day}: {counts['rows_in']} rows, {counts['requests_scored']} requests to score, "
              f"{counts['quarantined']} rows to quarantine, {counts['bytes'] / 1e6:.1f} MB")  # fmt: skip
    return 0


def write_logs(settings: LogSettings, out: Path) -> dict[str, Any]:
    """Write ``out``/logs, planted.jsonl and, last of all, truth.json; return the truth."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "planted.jsonl").open("w") as stream:
        planted = PlantedFile(stream)
        days = {str(day): write_day(settings, day, out / "logs", planted).to_json() for day in settings.days}
    truth = {"settings": settings.model_dump(mode="json"), "days": days}
    (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def _days(text: str) -> tuple[date, ...]:
    """2026-11-20, or several with commas, or a range 2026-11-01..2026-11-28."""
    first, dots, last = text.partition("..")
    if not dots:
        return tuple(date.fromisoformat(one) for one in text.split(","))
    start, end = date.fromisoformat(first), date.fromisoformat(last)
    return tuple(start + timedelta(days=i) for i in range((end - start).days + 1))


def _formats(text: str) -> tuple[str, ...]:
    return tuple(FORMAT_WEIGHTS) if text == "all" else tuple(text.split(","))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.constructed_logs", description=LogSettings.__doc__)
    parser.add_argument("--out", required=True, help="folder for logs/, truth.json and planted.jsonl")
    parser.add_argument("--days", required=True, help="2026-11-20, several with commas, or FIRST..LAST")
    parser.add_argument("--formats", default="all", help=f"all, or of {', '.join(FORMAT_WEIGHTS)}")
    parser.add_argument(
        "--labelled-sets", type=int, default=0, help="also write labelled.jsonl, to fit a model on"
    )
    for name, field in LogSettings.model_fields.items():
        if name not in ("days", "formats"):
            parser.add_argument(
                f"--{name.replace('_', '-')}", type=type(field.default), default=field.default
            )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
