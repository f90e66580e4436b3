"""Commits of two runs that know nothing of each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sgpu.errors import StageError, UsageError
from sgpu.logs.snapshot import Snapshot
from sgpu.scoring import publish
from sgpu.scoring.plan import ModelName, Models
from sgpu.scoring.publish import DayTables, StagedFile
from sgpu.scoring.tables import QUARANTINE, SCORES, Base, reproducible_parquet_bytes
from sgpu.storage.location import Location
from tests.object_store import ObjectStore

DAY = date(2026, 11, 20)
MODELS = Models(ModelName("m", "m", "1", "0" * 64))
SNAPSHOT = Snapshot((), True, DAY.isoformat())


@dataclass(frozen=True)
class StandInSettings:
    rescore: bool = False

    def window(self, day: date) -> list[date]:
        return [day + timedelta(days=i) for i in (-1, 0, 1)]


@dataclass(frozen=True)
class StandInPlan:
    """As much of a plan as a commit looks at."""

    key: str
    day: date = DAY
    settings: StandInSettings = field(default_factory=StandInSettings)
    models: Models = MODELS
    snapshot: Snapshot = SNAPSHOT


@dataclass
class Place:
    """Tables somewhere, and runs that write to them."""

    out: Location

    def file(self, table: Any, name: str, ids: list[str], day: date = DAY) -> StagedFile:
        columns = (
            {"request_id": ids} if table is SCORES else {"request_id": ids, "reason": ["refusal"] * len(ids)}
        )
        arrays = [pa.array(columns.get(one.name, [None] * len(ids)), one.type) for one in table.schema]
        payload = reproducible_parquet_bytes(pa.Table.from_arrays(arrays, schema=table.schema))
        file = self.out / table.name / f"date={day}" / name
        file.parent.make_folder()
        file.write_bytes(payload)
        return StagedFile(f"date={day}/{name}", len(payload), len(ids), min(ids), max(ids))

    def run(self, key: str, base: Base, ids: list[str], day: date = DAY, rescore: bool = False) -> int | None:
        plan: Any = StandInPlan(key, day, StandInSettings(rescore))
        return self.tables(day).commit_scores(
            plan, base, [self.file(SCORES, f"{key}.parquet", ids, day)], plan.settings.window(plan.day)
        )

    def tables(self, day: date = DAY) -> DayTables:
        return DayTables(self.out, day)

    def base(self, day: date = DAY) -> Base:
        return self.tables(day).base(StandInSettings().window(day))

    def ids(self, table: str = "scores") -> list[str]:
        folder = self.out / table
        return sorted(
            DeltaTable(str(folder), storage_options=folder.storage_options)
            .to_pyarrow_table()["request_id"]
            .to_pylist()
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(Location.of(tmp_path))


def test_a_day_is_written_by_whoever_committed_last(place: Place) -> None:
    assert place.tables().written_by("A") is None
    first = place.run("A", Base(), ["x"])
    assert place.tables().written_by("A") == first == 1
    second = place.run("B", place.base(), ["y"])
    assert (place.tables().written_by("A"), place.tables().written_by("B")) == (None, second)
    assert place.tables(DAY + timedelta(days=1)).written_by("A") is None
    assert place.ids() == ["x", "y"]


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_a_run_with_an_outdated_look_at_its_window_commits_nothing(place: Place, shift: int) -> None:
    outdated = place.base()
    place.run("A", place.base(DAY + timedelta(days=shift)), ["x"], DAY + timedelta(days=shift))
    assert place.run("B", outdated, ["x"]) is None
    assert place.ids() == ["x"]


def test_a_table_with_other_columns_is_refused_before_its_files_are_read(place: Place) -> None:
    folder = place.out / SCORES.name
    DeltaTable.create(str(folder), schema=pa.schema([("request_id", pa.string()), ("date", pa.string())]))
    with pytest.raises(UsageError, match=r"another version of SGPU.*accepted.*Give another --out"):
        place.tables().base([DAY])


def test_a_commit_outside_the_window_changes_nothing(place: Place) -> None:
    known = place.base()
    place.run("A", Base(), ["x"], DAY + timedelta(days=2))
    assert place.run("B", known, ["y"]) == 2


def test_a_commit_that_slips_in_between_look_and_commit_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., bool] = publish.commit

    def slow(*given: Any) -> bool:
        monkeypatch.setattr(publish, "commit", original)
        assert place.run("A", Base(), ["x"]) is not None
        return original(*given)

    place.run("start", Base(), ["start"], DAY + timedelta(days=9))
    monkeypatch.setattr(publish, "commit", slow)
    assert place.run("B", Base(), ["x"]) is None
    assert place.ids() == ["start", "x"]


def test_runs_of_many_days_at_once_all_commit(place: Place) -> None:
    days = [DAY + timedelta(days=5 * i) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda day: place.run("A", Base(), [str(day)], day), days))
    assert sorted(map(int, filter(None, made))) == list(range(1, 9))
    assert place.ids() == sorted(map(str, days))


def test_a_rescored_day_replaces_its_rows_and_no_others(place: Place) -> None:
    place.run("A", Base(), ["x"])
    place.run("A", place.base(DAY + timedelta(days=1)), ["y"], DAY + timedelta(days=1))
    place.run("B", place.base(), ["z"], rescore=True)
    assert place.ids() == ["y", "z"]


def test_a_file_that_was_cleaned_away_is_not_published(place: Place) -> None:
    plan: Any = StandInPlan("A")
    staged = place.file(SCORES, "a.parquet", ["x"])
    (place.out / "scores" / staged.path).delete()
    with pytest.raises(StageError, match="made anew"):
        place.tables().commit_scores(plan, Base(), [staged], plan.settings.window(plan.day))
    assert place.tables().generation() is None


def quarantined(place: Place, generation: int, name: str, ids: list[str]) -> None:
    plan: Any = StandInPlan(name)
    place.tables().commit_quarantine(plan, generation, [place.file(QUARANTINE, f"{name}.parquet", ids)])


def test_the_quarantine_of_an_earlier_run_never_replaces_a_later_one(place: Place) -> None:
    quarantined(place, 5, "B", ["b"])
    quarantined(place, 4, "A", ["a"])
    assert place.ids("quarantine") == ["b"]
    assert place.tables().quarantine_of(5) and not place.tables().quarantine_of(6)


def test_a_quarantine_that_is_the_same_as_before_is_not_removed_and_added_at_once(place: Place) -> None:
    quarantined(place, 4, "A", ["a"])
    quarantined(place, 5, "A", ["a"])
    plan: Any = StandInPlan("A")
    both = [place.file(QUARANTINE, "A.parquet", ["a"]), place.file(QUARANTINE, "B.parquet", ["b"])]
    place.tables().commit_quarantine(plan, 6, both)
    assert place.ids("quarantine") == ["a", "b"]
    for file in (Path(place.out.path) / "quarantine" / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        paths = [[action[kind]["path"] for action in actions if kind in action] for kind in ("add", "remove")]
        assert not set(paths[0]) & set(paths[1])


def test_two_runs_in_object_storage_commit_one_after_the_other(object_store: ObjectStore) -> None:
    place = Place(Location.of(object_store.uri("out")))
    known = place.base()
    assert place.run("A", known, ["x"]) == 1
    assert place.run("B", known, ["x"]) is None
    assert place.run("B", place.base(), ["y"]) == 2
    assert place.ids() == ["x", "y"]
