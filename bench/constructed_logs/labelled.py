"""Labelled response sets of the same traffic, for `sgpu fit` and for benchmarks of what it fitted."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

from bench.constructed_logs.settings import LogSettings
from bench.constructed_logs.traffic import Traffic

# No constructed log is of this day, so that no set is trained on and scored.
TRAINING_DAY = date(2000, 1, 1)


def write_labelled(settings: LogSettings, sets: int, path: Path) -> None:
    """Write ``sets`` rows of question, N answers and label, all of the usual N and none of them adrift."""
    usual = settings.model_copy(
        update={"incoherent": 0.0, "other_sizes": 0.0, "labelled": 1.0, "days": (TRAINING_DAY,)}
    )
    traffic = Traffic(usual, TRAINING_DAY)
    with path.open("w", encoding="utf-8") as stream:
        for number in range(sets):
            request = traffic.request(number)
            row = {
                "question_id": request.request_id,
                "question": request.question,
                "answers": list(request.answers),
                "label": request.label,
            }
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
