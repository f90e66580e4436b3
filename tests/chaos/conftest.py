from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from bench.constructed_logs.labelled import write_labelled
from bench.constructed_logs.settings import LogSettings
from tests.chaos.onlooker import looked_at
from tests.chaos.outcome import DAY
from tests.chaos.runs import INSTANTS
from tests.chaos.tally import Tally, as_table, as_text
from tests.chaos.world import World, made

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench-results"
_tally = Tally()


@pytest.fixture(scope="session")
def tally() -> Tally:
    return _tally


def pytest_terminal_summary() -> None:
    if not _tally.faults:
        return
    Console().print(as_table(_tally.faults))
    _tally.write(RESULTS / "chaos.json", INSTANTS)
    (RESULTS / "chaos.md").write_text(as_text(_tally.faults))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two fits to the same answers with different seeds, and the encoder that users have."""
    from sgpu.own_answers.fit import fit_responses
    from sgpu.own_answers.request import FitRequest
    from sgpu.study.fit_settings import FitSettings

    folder = tmp_path_factory.mktemp("models")
    write_labelled(LogSettings(days=(DAY,), seed=3), 120, folder / "labelled.jsonl")
    for seed in (0, 1):
        request = FitRequest(settings=FitSettings(seed=seed), resamples=20)
        fit_responses(folder / "labelled.jsonl", folder / f"model-{seed}", request, Console(quiet=True))
    return [folder / "model-0", folder / "model-1"]


@pytest.fixture(scope="session")
def world(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> World:
    """A day of all formats with all kinds of bad rows, long enough to be killed anywhere."""
    return made(tmp_path_factory.mktemp("world"), models[0])


@pytest.fixture(scope="session")
def small_world(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> World:
    """The same for what is tried in one process, often."""
    return made(tmp_path_factory.mktemp("small"), models[0], rows=250, novel=0.02)


@pytest.fixture(scope="session")
def clean_world(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> World:
    """A day without bad rows, in files that can be taken away without a change to what the others hold."""
    formats = ("sgpu", "openai", "otel", "mlflow")
    return made(
        tmp_path_factory.mktemp("clean"),
        models[0],
        rows=250,
        novel=0.02,
        bad=0,
        duplicates=0,
        formats=formats,
    )


@pytest.fixture(scope="module")
def folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place whose tables are read all the while, and never seen in part."""
    place = tmp_path_factory.mktemp("looked-at")
    with looked_at(place, [world.wanted.tables.scores.height]) as report:
        yield place
    assert report["looks"] > 0 and report["problems"] == []
