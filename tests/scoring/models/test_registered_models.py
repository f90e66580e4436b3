"""Listing versions and promoting one, with a look at its files first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgpu.errors import DataError, IntegrityError
from sgpu.scoring.models.registered_models import below_floor, list_models, promote_model
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


def measures(rows: int = 40, value: float | None = 0.8, lo: float | None = 0.6) -> dict[str, Any]:
    auroc = {"metric": "auroc", "value": value, "lo": lo}
    return {"format": 1, "rows": {"test": rows}, "metrics": [{"metric": "ece"}, auroc]}


def test_a_champion_has_rows_of_both_classes_and_an_auroc_surely_above_chance() -> None:
    assert below_floor(measures()) == []
    assert below_floor(measures(rows=2, value=None, lo=None)) == [
        "2 held-out rows, below 30",
        "the held-out rows are all right or all wrong, so that it has no AUROC",
    ]
    assert below_floor(measures(lo=0.5)) == ["the lower bound of its AUROC is 0.500, not above 0.5"]


@pytest.mark.parametrize("facts", [{}, {"rows": {"test": "x"}}, {"rows": {"test": 9}, "metrics": []}])
def test_measures_of_another_make_are_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError, match=r"metrics\.json"):
        below_floor(facts)


def test_a_version_below_the_floor_is_promoted_by_force_only(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/mlflow.db"
    model = saved(tmp_path / "model", n=3)
    (model / "metrics.json").write_text(json.dumps(measures(rows=2)))
    open_tracker(address).register_fit(model, "small", n_answers=3, alias="challenger")
    with pytest.raises(
        DataError, match=r"version 1 of small is not made .*2 held-out rows, below 30.*with force"
    ):
        promote_model("small", 1, address)
    assert list_models("small", address)[0].aliases == ("challenger",)
    promote_model("small", 1, address, force=True)
    assert list_models("small", address)[0].aliases == ("challenger", "champion")
