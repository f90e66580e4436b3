"""MLflow that is not there when a run begins or ends, and an alias that moves meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sgpu.errors import DataError
from sgpu.scoring import day as scoring_day
from sgpu.scoring.models.pinning import Pin
from sgpu.scoring.models.registered_models import promote_model
from sgpu.tracking import open_tracker
from tests.chaos.mlflow_server import MlflowServer
from tests.chaos.night import Night, copied
from tests.chaos.outcome import DAY, Tables, Wanted, outcome, summary
from tests.chaos.runs import INSTANTS, share, until_done
from tests.chaos.tally import Tally
from tests.chaos.world import World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

NAME = "chaos"
CHAMPION = f"models:/{NAME}@champion"
MOVES = max(1, INSTANTS // 4)


@pytest.fixture(scope="module")
def server(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """With both models registered; which is the champion, each test says."""
    server = MlflowServer(tmp_path_factory.mktemp("mlflow"))
    try:
        server.up()
        for folder in models:
            fit = open_tracker(server.url).register_fit(folder, NAME, n_answers=10, alias="challenger")
            assert fit is not None
        yield server
    finally:
        server.down()


@pytest.fixture
def first(server: MlflowServer) -> MlflowServer:
    """The server, up, with version 1 as champion."""
    server.up()
    promote_model(NAME, 1, server.url, force=True)  # fitted to few rows
    return server


@pytest.fixture(scope="module")
def wanted(world: World, small_world: World) -> dict[str, Wanted]:
    """As the worlds' own, with the name of the registered version in every row."""

    def named(wanted: Wanted) -> Wanted:
        scores = wanted.tables.scores.with_columns(scorer=pl.lit(f"{NAME}/1"))
        return Wanted(Tables(scores, wanted.tables.quarantine), wanted.counts)

    return {"world": named(world.wanted), "small": named(small_world.wanted)}


def night_of(logs: Path | str, server: MlflowServer, tracking: bool = True) -> Night:
    return Night(str(logs), CHAMPION, {"tracking": server.url} if tracking else {})


def test_a_run_that_finds_no_mlflow_at_its_start_changes_nothing_and_the_next_one_is_whole(
    small_world: World, wanted: dict[str, Wanted], tally: Tally, tmp_path: Path, first: MlflowServer
) -> None:
    started, out = time.monotonic(), tmp_path / "out"
    night = night_of(small_world.logs, first)
    first.down()
    with pytest.raises(DataError, match="does not answer"):
        night.score(out)
    assert not (out / "scores").exists()
    first.up()
    night.score(out)
    found = outcome(out, wanted["small"])
    tally.add("MLflow down at the start", found, seconds=time.monotonic() - started, runs=2)
    assert found.problems == ()


def test_a_run_that_was_killed_goes_on_without_mlflow(
    small_world: World,
    wanted: dict[str, Wanted],
    tally: Tally,
    tmp_path: Path,
    first: MlflowServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, out = time.monotonic(), tmp_path / "out"
    night = night_of(small_world.logs, first)
    with cut_off(monkeypatch), pytest.raises(KeyboardInterrupt):
        night.score(out)
    first.down()
    result = night.score(out)
    assert result.status == "committed" and "MLflow has not got the metrics" in result.warnings[0]
    found = outcome(out, wanted["small"])
    tally.add("MLflow down when a run goes on", found, seconds=time.monotonic() - started, runs=2)
    assert found.problems == ()


@contextmanager
def cut_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The run ends at once when it has written down which model it uses."""
    with monkeypatch.context() as patch:
        patch.setattr(Pin, "keep", then(Pin.keep, end_here))
        yield


def end_here() -> None:
    raise KeyboardInterrupt


def then(function: Callable[..., Any], more: Callable[[], None]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        result = function(*given, **named)
        more()
        return result

    return call


def test_a_run_that_finds_no_mlflow_at_its_end_is_committed_and_its_metrics_come_later_and_once(
    small_world: World,
    wanted: dict[str, Wanted],
    tally: Tally,
    tmp_path: Path,
    first: MlflowServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, out = time.monotonic(), tmp_path / "out"
    night = night_of(small_world.logs, first)
    with monkeypatch.context() as patch:
        patch.setattr(scoring_day, "summarise_day", then(scoring_day.summarise_day, first.down))
        result = night.score(out)
    assert result.status == "committed" and "MLflow has not got the metrics" in result.warnings[0]
    found = outcome(out, wanted["small"])
    assert not summary(out)["tracked"]
    first.up()
    for _ in range(2):
        again = night.score(out)
        assert again.status == "unchanged" and again.warnings == () and summary(out)["tracked"]
    tally.add("MLflow down at the end", found, seconds=time.monotonic() - started, runs=3)
    assert found.problems == () and days_logged(first, str(out)) == 1


def days_logged(server: MlflowServer, table: str) -> int:
    """Runs of the experiment for this day and table, asked of MLflow itself."""
    from mlflow import MlflowClient

    client = MlflowClient(server.url)
    experiments = [one.experiment_id for one in client.search_experiments()]
    runs = client.search_runs(experiments)
    return sum(table in (*one.data.tags.values(), *one.data.params.values()) for one in runs)


@pytest.mark.parametrize("instant", range(MOVES))
def test_a_killed_run_goes_on_with_the_model_it_began_with_though_the_alias_has_moved(
    world: World, wanted: dict[str, Wanted], tally: Tally, tmp_path: Path, first: MlflowServer, instant: int
) -> None:
    started, out = time.monotonic(), tmp_path / "out"
    night = night_of(copied(world.logs, tmp_path / "logs"), first, tracking=False)
    environment = dict(os.environ)
    run = night.start(out, environment, tracking=first.url)
    try:
        # The name was looked up, and the first parts are there.
        assert run.wait_until(lambda: any(out.glob("work/*/parts/scoring/*.parquet"))), run.said
        killed = run.lives_for(2 * share("alias", instant * (INSTANTS // MOVES)))
    finally:
        run.kill()
        run.stop()
    promote_model(NAME, 2, first.url, force=True)
    runs = until_done(lambda: night.start(out, environment, tracking=first.url))
    found = outcome(out, wanted["world"])
    late = late_rows(tmp_path / "logs", world)
    runs += until_done(lambda: night.start(out, environment, tracking=first.url))
    tables = Tables.of(out)
    by_scorer = dict(tables.scores.group_by("scorer").len().rows())
    tally.add(
        "alias moved during a run",
        found,
        seconds=time.monotonic() - started,
        times=int(killed),
        runs=1 + runs,
    )
    assert found.problems == ()
    # What comes later is of the new champion, and what was scored stays as it was.
    assert by_scorer == {f"{NAME}/1": wanted["world"].tables.scores.height, f"{NAME}/2": late}
    assert max(tables.ids.values()) == 1


def late_rows(logs: Path, world: World) -> int:
    """Deliver some requests that were not there before; how many."""
    file = next((logs / f"dt={DAY}").glob("sgpu-0.jsonl"))
    known = set(world.wanted.tables.ids)
    lines = [line for line in file.read_text().splitlines() if any(one in line for one in known)][:20]
    (logs / f"dt={DAY}" / "late.jsonl").write_text(
        "".join(line.replace('"request_id":"req-', '"request_id":"late-') + "\n" for line in lines)
    )
    return len(lines)
