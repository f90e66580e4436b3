from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from bench.constructed_logs.labelled import write_labelled
from bench.constructed_logs.settings import LogSettings
from tests.chaos.night import Night, construct
from tests.chaos.outcome import DAY, Wanted, summary
from tests.chaos.runs import INSTANTS
from tests.chaos.tally import Tally, as_table, as_text
from tests.chaos.world import World, checked_against_truth

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
    from pipelines.fit import FitRequest, fit_responses
    from sgpu.stages.own_model import FitSettings

    folder = tmp_path_factory.mktemp("models")
    write_labelled(LogSettings(days=(DAY,), seed=3), 120, folder / "labelled.jsonl")
    for seed in (0, 1):
        request = FitRequest(settings=FitSettings(seed=seed), resamples=20)
        fit_responses(folder / "labelled.jsonl", folder / f"model-{seed}", request, Console(quiet=True))
    return [folder / "model-0", folder / "model-1"]


@pytest.fixture(scope="session")
def world(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> World:
    """A day of all formats with all kinds of bad rows, scored once without trouble."""
    folder = tmp_path_factory.mktemp("world")
    truth = construct(folder)
    night = Night(str(folder / "logs"), str(models[0]))
    night.score(folder / "out")
    wanted = Wanted.of(folder / "out", truth)
    checked_against_truth(folder, wanted.tables, summary(folder / "out"), truth)
    return World(folder, night, truth, wanted)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
