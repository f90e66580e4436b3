"""What is fetched from a hub is compared with its hashes, listed, and never fetched twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu.errors import DataError
from sgpu.hashing import sha256_of_file
from sgpu.models.fetched import HubRepository, fetch_repositories
from tests.models.fake_hub import MAIN, FakeHub, serve

COMMIT = "a" * 40
MODEL = {
    "config.json": "{}",
    "model.safetensors": "weights",
    "onnx/model.safetensors": "more",
    "pytorch_model.bin": "pickle",
    "merges.txt": "a b",
    "README.md": "#",
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    with serve(tmp_path / "hub") as hub:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)
        template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        add(hub, "models/org/model", MODEL)
        yield hub


def add(hub: FakeHub, name: str, files: dict[str, str]) -> None:
    for file, text in files.items():
        path = hub.root / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def fetch(hub: FakeHub, *repositories: HubRepository) -> dict[str, dict[str, dict[str, object]]]:
    home = hub.root.parent / "home"
    record = fetch_repositories(repositories, home, home / "hub", lambda line: None)
    content: dict[str, dict[str, dict[str, object]]] = json.loads(record.read_text())
    return content


def snapshot(hub: FakeHub, commit: str = COMMIT) -> Path:
    return hub.root.parent / "home" / "hub" / "models--org--model" / "snapshots" / commit


def test_what_is_read_is_fetched_and_listed_with_its_sha256(hub: FakeHub) -> None:
    record = fetch(hub, HubRepository("org/model", COMMIT))
    files = record[f"models/org/model@{COMMIT}"]
    assert {name: facts["sha256"] for name, facts in files.items()} == {
        name: sha256_of_file(snapshot(hub) / name)
        for name in ("config.json", "merges.txt", "model.safetensors")
    }
    assert files["model.safetensors"]["bytes"] == len("weights")


def test_a_second_call_fetches_only_what_is_missing(hub: FakeHub) -> None:
    fetch(hub, HubRepository("org/model", COMMIT))
    (snapshot(hub) / "merges.txt").resolve().unlink()
    hub.sent.clear()
    fetch(hub, HubRepository("org/model", COMMIT))
    assert hub.sent == ["merges.txt"]


def test_pickled_weights_are_fetched_where_there_are_no_others(hub: FakeHub) -> None:
    add(hub, "models/org/old", {"config.json": "{}", "pytorch_model.bin": "pickle"})
    assert "pytorch_model.bin" in fetch(hub, HubRepository("org/old"))[f"models/org/old@{MAIN}"]


def test_a_file_that_was_damaged_on_its_way_is_fetched_again(hub: FakeHub) -> None:
    hub.damaged = ["model.safetensors"]
    fetch(hub, HubRepository("org/model", COMMIT))
    assert (snapshot(hub) / "model.safetensors").read_text() == "weights"
    assert hub.sent.count("model.safetensors") == 2


def test_a_file_that_differs_is_named_and_removed_and_the_others_are_fetched(hub: FakeHub) -> None:
    hub.damaged = ["model.safetensors"] * 2
    add(hub, "datasets/org/data", {"data/train.parquet": "rows", "other.parquet": "no"})
    data = HubRepository("org/data", None, "dataset", ("data/*.parquet",))
    expected = sha256_of_file(hub.root / "models" / "org" / "model" / "model.safetensors")
    with pytest.raises(DataError, match=f"model.safetensors: sha256 is .*, expected {expected}. Try"):
        fetch(hub, HubRepository("org/model", COMMIT), data)
    assert not (snapshot(hub) / "model.safetensors").exists()
    record = json.loads((hub.root.parent / "home" / "fetched.json").read_text())
    assert list(record[f"datasets/org/data@{MAIN}"]) == ["data/train.parquet"]
    assert "model.safetensors" not in record[f"models/org/model@{COMMIT}"]


def test_every_repository_that_cannot_be_had_is_named(hub: FakeHub) -> None:
    hub.gated.add("org/model")
    with pytest.raises(DataError, match="2 problems") as said:
        fetch(hub, HubRepository("org/model", COMMIT), HubRepository("org/absent", COMMIT))
    assert "org/model: gated. Accept its terms at https://huggingface.co/org/model" in str(said.value)
    assert "org/absent: 404 Client Error" in str(said.value)


def test_offline_a_copy_is_compared_with_its_list(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    repositories = HubRepository("org/model"), HubRepository("org/absent", COMMIT)
    fetch(hub, repositories[0])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub.sent.clear()
    fetch(hub, repositories[0])
    (snapshot(hub, MAIN) / "config.json").resolve().write_text("[]")
    for _ in range(2):
        with pytest.raises(DataError, match=r"config\.json: sha256 is .* Copy the folder again") as said:
            fetch(hub, *repositories)
    assert "fetched.json lists no file of models/org/absent" in str(said.value)
    assert hub.sent == []
