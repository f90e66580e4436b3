"""The scorer of `sgpu score`, opened once a test process: loading takes most of a small run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sgpu.scoring.models.pinning import open_scorer
from sgpu.scoring.models.scorer import Scorer
from sgpu.scoring.plan import DayPlan

_models: list[tuple[Path, DayPlan]] = []


def open_kept(plan: DayPlan, models: Path) -> Scorer:
    champion, challenger = plan.models.champion, plan.models.challenger
    key = (champion.sha256, challenger.sha256 if challenger else None)
    _models[:] = [(models, plan)]
    return _opened(key)


@cache
def _opened(key: tuple[str, str | None]) -> Scorer:
    models, plan = _models[0]
    return open_scorer(plan, models)
