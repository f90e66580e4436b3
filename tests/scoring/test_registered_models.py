"""Listing versions and promoting one, with a look at its files first."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgpu.errors import DataError, IntegrityError
from sgpu.scoring.registered_models import list_models, promote_model
from sgpu.tracking import open_tracker
from tests.scoring.made_models import saved


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("store")
    tracker = open_tracker(f"sqlite:///{folder}/mlflow.db")
    for n in (4, 3):
        tracker.register_fit(saved(folder / f"model-{n}", n=n), "mine", n_answers=n, alias="challenger")
    return f"sqlite:///{folder}/mlflow.db"


def aliases(store: str) -> dict[int, tuple[str, ...]]:
    return {version.version: version.aliases for version in list_models("mine", store)}


def test_promoting_moves_the_champion_and_says_whom_it_replaces(store: str) -> None:
    assert promote_model("mine", 1, store) is None
    assert promote_model("mine", 2, store) == 1
    assert aliases(store) == {2: ("challenger", "champion"), 1: ()}


def test_a_version_whose_files_were_changed_is_not_promoted(store: str) -> None:
    root = Path(store.removeprefix("sqlite:///")).parent / "mlflow-artifacts"
    weights = next(path for path in root.rglob("gp.safetensors") if (path.parent / "bundle.json").is_file())
    version = 1 if b'"n_answers": 4' in (weights.parent / "bundle.json").read_bytes() else 2
    promote_model("mine", 3 - version, store)
    content = weights.read_bytes()
    try:
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(IntegrityError, match="they were changed afterwards"):
            promote_model("mine", version, store)
    finally:
        weights.write_bytes(content)
    assert "champion" in aliases(store)[3 - version]


@pytest.mark.parametrize(("name", "version"), [("mine", 9), ("nobodys", 1)])
def test_what_is_not_there_cannot_be_promoted(store: str, name: str, version: int) -> None:
    with pytest.raises(DataError, match=name):
        promote_model(name, version, store)
