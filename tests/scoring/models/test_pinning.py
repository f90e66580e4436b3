"""The models of a plan in a worker, with the cache of vectors only where the settings ask for it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sgpu.logs.snapshot import Snapshot, take_snapshot
from sgpu.scoring.models import pinning as opened
from sgpu.scoring.models.embedding_cache import EmbeddingCache
from sgpu.scoring.plan import DayPlan, ModelName, Models
from sgpu.scoring.settings import ScoreSettings
from sgpu.storage.location import Location

DAY = date(2026, 11, 20)


@pytest.mark.parametrize("cache_mb", [0, 2])
def test_vectors_are_kept_only_where_the_settings_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_mb: float
) -> None:
    given: list[Any] = []
    monkeypatch.setattr("sgpu.scoring.models.scorer.Scorer", lambda *arguments: given.append(arguments))
    monkeypatch.setattr(opened, "model_folder", lambda out, model, models: models / model.name)
    logs = Location.of(tmp_path / "logs")
    (tmp_path / "logs").mkdir()
    settings = ScoreSettings(
        logs=str(logs), out=str(tmp_path / "out"), model="m", date=DAY, cache_mb=cache_mb
    )
    snapshot: Snapshot = take_snapshot(logs, DAY)
    opened.open_scorer(DayPlan(DAY, settings, Models(ModelName("u", "m", "1", "s")), snapshot), tmp_path)
    cache = given[0][3]
    if not cache_mb:
        assert cache is None
    else:
        assert isinstance(cache, EmbeddingCache) and cache.most_bytes == 2 * 2**20
        assert cache.path.parent == tmp_path


def test_the_cache_decides_no_row_and_is_no_part_of_the_key() -> None:
    without = ScoreSettings(logs="l", out="o", model="m", date=DAY)
    assert without.content() == without.model_copy(update={"cache_mb": 64}).content()
