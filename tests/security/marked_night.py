"""`python -m tests.security.marked_night PLACE`: a night over logs with every fault, told in all detail.

Each question and each answer has a mark, so that a word of them is found wherever it does not belong.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path

from bench.constructed_logs.__main__ import write_logs
from bench.constructed_logs.settings import LogSettings
from bench.constructed_logs.traffic import Request, Traffic
from tests.scoring.nights.nights import DAY, model_folder, night

ANSWER, QUESTION, KEY = "zebra4711", "walrus4712", "sk-ocelot4713"
_drawn = Traffic.request


def marked(traffic: Traffic, number: int) -> Request:
    request = _drawn(traffic, number)
    answers = tuple(f"{ANSWER} {text}" for text in request.answers)
    return replace(request, question=f"{QUESTION} {request.question}", answers=answers)


def main(place: Path) -> None:
    logging.basicConfig(level=logging.DEBUG)
    Traffic.request = marked  # type: ignore[method-assign]
    write_logs(LogSettings(rows=1500, days=(DAY,), bad=0.5), place)
    model_folder(place / "model")
    night(place, late_days=0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
