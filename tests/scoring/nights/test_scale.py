"""What a night costs beside the encoder grows with its rows: counted, not timed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sgpu.runtime.stage_actor import StageActor
from sgpu.scoring.day import score_day
from sgpu.scoring.models.pinning import ScorerSource
from sgpu.storage import parquet_files
from tests.scoring.nights.nights import DAY, SCORER, row, rows, scores, settings, write
from tests.scoring.nights.test_formats import single

ROWS = 300


def night_of(place: Path, n: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[int]]:
    """A night of n requests and n single answers, after another: files opened, bytes of each call."""
    place.mkdir()
    (place / "model").symlink_to(place.parent / "model")
    source = ScorerSource(place / "out" / "work", SCORER)
    opened, bytes_of_calls = [0], list[int]()
    stream = parquet_files.opened_stream

    def counted(*given: Any, **named: Any) -> Any:
        opened[0] += 1
        return stream(*given, **named)

    work = StageActor.__call__

    def measured(actor: StageActor, batch: pa.Table) -> pa.Table:
        bytes_of_calls.append(batch.nbytes)
        return work(actor, batch)

    with monkeypatch.context() as patch:
        patch.setattr(StageActor, "__call__", measured)
        patch.setattr(parquet_files, "opened_stream", counted)
        for day in (DAY, DAY + timedelta(days=1)):
            opened[0] = 0
            bytes_of_calls.clear()
            for start in range(0, n, 50):
                lines = rows(range(start, start + 50), day)
                asked = [single(f"s{day}{i}", f"{i}", 0, f"{i // 3}?", day) for i in range(start, start + 50)]
                write(place / "logs", f"{start:06d}.jsonl", [*lines, *asked], day)
            small = settings(place, bucket_rows=20, split_mb=0.005, date=day)
            score_day(small, day, source=source, lock=False)
    return opened[0], bytes_of_calls


def test_twice_the_rows_open_twice_the_files_and_calls_stay_small(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu.scoring.sets.shuffle.ROWS_OF_A_PART", 100)
    (once, calls), (twice, more_calls) = (night_of(place / f"{n}", n, monkeypatch) for n in (ROWS, 2 * ROWS))
    assert once > 50  # as many small files as there are are opened at least
    assert twice <= 2.2 * once
    assert len(more_calls) <= 2.2 * len(calls)
    assert max(more_calls) < 1000


def test_a_day_is_published_in_few_files_in_the_order_of_its_ids(place: Path) -> None:
    write(place / "logs", "a.jsonl", [row(f"r{number:03d}", ["a", "b"]) for number in range(99, -1, -1)])
    source = ScorerSource(place / "out" / "work", SCORER)
    score_day(settings(place), DAY, source=source)
    [file] = (place / "out" / "scores").rglob("*.parquet")
    ids = parquet_files.read_rows(file, ["request_id"])["request_id"].to_pylist()
    assert ids == sorted(ids) == sorted(scores(place)["request_id"])
