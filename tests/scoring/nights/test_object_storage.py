"""A night whose logs, table and work are all in object storage."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from sgpu.errors import StageError
from sgpu.scoring.day import score_day
from sgpu.scoring.models.pinning import ScorerSource
from sgpu.scoring.outcome import DayResult
from sgpu.storage.location import Location
from tests.object_store import ObjectStore
from tests.scoring.nights.nights import DAY, SCORER, rows, settings, write
from tests.scoring.nights.test_exactly_once import Interruption


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to a table elsewhere is kept on this machine: models and locks."""
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path / "cache"))


def upload(place: Path, store: ObjectStore) -> None:
    Location.of(store.uri("logs")).upload(place / "logs")


def night(place: Path, store: ObjectStore) -> DayResult:
    asked = settings(place, logs=store.uri("logs"), out=store.uri("out"))
    return score_day(asked, DAY, source=ScorerSource(place / "models", SCORER))


def ids(store: ObjectStore) -> list[str]:
    reach = {"aws_endpoint_url": store.url, "aws_allow_http": "true", "aws_region": "us-east-1"}
    return pl.read_delta(store.uri("out/scores"), storage_options=reach)["request_id"].sort().to_list()


def test_a_night_in_object_storage_is_scored_once(place: Path, object_store: ObjectStore) -> None:
    write(place / "logs", "a.jsonl", [*rows(range(20)), "{broken"])
    upload(place, object_store)
    first = night(place, object_store)
    assert first.accounting is not None and first.accounting.scored_rows == 20
    assert night(place, object_store).status == "unchanged"
    write(place / "logs", "b.jsonl", rows(range(15, 25)))
    upload(place, object_store)
    night(place, object_store)
    assert ids(object_store) == [f"q{i:05d}" for i in range(25)]
    left = {
        file.path.split("/")[3] for file in Location.of(object_store.uri("out/work")).files(recursive=True)
    }
    assert left == {"models"}


def test_a_night_whose_storage_fails_goes_on_from_there(place: Path, object_store: ObjectStore) -> None:
    write(place / "logs", "a.jsonl", rows(range(20)))
    upload(place, object_store)
    object_store.fail(403, 10_000, ["PUT"])
    with pytest.raises(StageError, match="access is denied"):
        night(place, object_store)
    object_store.fail(403, 0)
    assert night(place, object_store).status == "committed"
    assert ids(object_store) == [f"q{i:05d}" for i in range(20)]


@pytest.mark.parametrize("late", [range(0), range(15, 25)], ids=["same files", "late rows"])
def test_two_machines_at_once_score_each_request_once(
    place: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, late: range
) -> None:
    def score_elsewhere() -> None:
        if late:
            write(place / "logs", "b.jsonl", rows(late))
            upload(place, object_store)
        with monkeypatch.context() as machine:
            machine.setenv("SGPU_CACHE", str(place / "elsewhere"))
            assert night(place, object_store).status == "committed"

    write(place / "logs", "a.jsonl", rows(range(20)))
    upload(place, object_store)
    Interruption(monkeypatch, score_elsewhere)
    night(place, object_store)
    assert ids(object_store) == [f"q{i:05d}" for i in range(max(20, late.stop))]
