"""Versions of registered models, in a store on this machine and over MLflow's own server."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu.errors import DataError, IntegrityError
from sgpu.storage.bundle_files import bundle_sha256
from sgpu.tracking import open_tracker, open_versions
from sgpu.tracking.fits import MlflowVersions
from tests.scoring.made_models import saved


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    tracker = open_tracker(f"sqlite:///{folder}/mlflow.db")
    for n in (4, 3):
        tracker.register_fit(saved(folder / f"model-{n}", n=n), "mine", n_answers=n, alias=f"of-{n}")
    return folder


@pytest.fixture
def versions(root: Path) -> Any:
    return open_versions(f"sqlite:///{root}/mlflow.db")


def test_versions_come_newest_first_with_aliases_and_hash(versions: Any, root: Path) -> None:
    newest, oldest = versions.all_of("mine")
    assert (newest.version, newest.aliases, newest.n_answers) == (2, ("of-3",), "3")
    assert (oldest.version, oldest.aliases, oldest.uri) == (1, ("of-4",), "models:/mine/1")
    assert oldest.sha256 == bundle_sha256(root / "model-4")
    assert oldest.created.endswith("+00:00")


def test_for_an_unknown_model_those_that_exist_are_listed(versions: Any) -> None:
    with pytest.raises(DataError, match=r"unknown registered model 'nobodys'\. Known: mine\."):
        versions.all_of("nobodys")


def test_an_alias_follows_its_version(versions: Any) -> None:
    assert versions.meant_by("models:/mine@of-4").version == 1
    assert versions.make_champion(versions.meant_by("models:/mine/1")) is None
    assert versions.make_champion(versions.meant_by("models:/mine/2")) == 1
    assert versions.meant_by("models:/mine@champion").aliases == ("champion", "of-3")


class Listing:
    """An artifact repository that lists what it is told and counts what is asked."""

    def __init__(self, folders: dict[str, list[tuple[str, bool]]]) -> None:
        self.folders, self.fetched = folders, list[str]()

    def list_artifacts(self, path: str | None = None) -> list[Any]:
        from mlflow.entities import FileInfo

        return [FileInfo(name, is_dir, 1) for name, is_dir in self.folders.get(path or "", [])]

    def download_artifacts(self, path: str, dst_path: str) -> None:
        self.fetched.append(path)
        target = Path(dst_path, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("{}")


def copy_of(listing: Listing, monkeypatch: pytest.MonkeyPatch, target: Path) -> None:
    monkeypatch.setattr("sgpu.tracking.fits.get_artifact_repository", lambda *_, **__: listing)
    MlflowVersions("http://127.0.0.1:1")._copy("mlflow-artifacts:/x", "models:/mine/1", target)


def test_of_a_remote_listing_only_the_bundle_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = Listing(
        {
            "": [("MLmodel", False), ("code.py", False), ("artifacts", True)],
            "artifacts": [("artifacts/bundle", True)],
            "artifacts/bundle": [
                ("artifacts/bundle/bundle.json", False),
                ("artifacts/bundle/gp.json", False),
            ],
        }
    )
    copy_of(listing, monkeypatch, tmp_path / "to")
    assert listing.fetched == ["artifacts/bundle/bundle.json", "artifacts/bundle/gp.json"]
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == ["bundle.json", "gp.json"]


@pytest.mark.parametrize(
    "names",
    [["bundle.json", "../../evil.json"], ["../bundle.json"], ["/bundle.json"], ["bundle.json", "x.pkl"]],
)
def test_a_remote_listing_that_leaves_its_folder_or_names_code_is_refused(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = Listing({"": [(name, False) for name in names]})
    with pytest.raises(IntegrityError):
        copy_of(listing, monkeypatch, tmp_path / "deep" / "to")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_remote_listing_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = Listing({"": [("a", True)], "a": [("a", True)]})
    with pytest.raises(IntegrityError, match="more than 1000"):
        copy_of(listing, monkeypatch, tmp_path / "to")


@pytest.fixture
def server(root: Path, tmp_path: Path) -> Iterator[str]:
    """MLflow's server with a store of its own, which also serves the files."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db"]
    process = subprocess.Popen(
        [*command, "--artifacts-destination", str(tmp_path / "files")],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield address
    finally:
        import os
        import signal

        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


@pytest.mark.slow
def test_over_a_real_server_a_model_is_registered_pinned_and_kept_when_the_server_is_gone(
    server: str, root: Path, tmp_path: Path
) -> None:
    from sgpu.fitted.pinned_model import resolve_model
    from sgpu.scoring.models.registered_models import list_models, promote_model

    fit = open_tracker(server).register_fit(root / "model-4", "served", n_answers=4, alias="challenger")
    assert fit is not None and promote_model("served", fit.version, server) is None
    pinned = resolve_model("models:/served@champion", tmp_path / "work", server)
    assert pinned.sha256 == bundle_sha256(root / "model-4")
    files = next((tmp_path / "files").rglob("bundle.json")).parent.relative_to(tmp_path / "files")
    served = resolve_model(f"mlflow-artifacts:/{files}", tmp_path / "work", server)
    assert (served.name, served.sha256) == (files.name, pinned.sha256)
    assert [version.aliases for version in list_models("served", server)] == [("challenger", "champion")]
    changed = next((tmp_path / "files").rglob("gp.safetensors"))
    changed.write_bytes(changed.read_bytes()[:-1] + b"!")
    with pytest.raises(IntegrityError, match="they were changed afterwards"):
        resolve_model("models:/served/1", tmp_path / "elsewhere", server)
