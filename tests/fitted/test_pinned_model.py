"""Pinning a model: what an alias means now, copied once, and nothing that was changed or can run."""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.fitted import pinned_model
from sgpu.fitted.model import FittedModel, load_model
from sgpu.fitted.pinned_model import resolve_model
from sgpu.gp.heads import OtherSizes
from sgpu.tracking import open_tracker, open_versions
from tests.object_store import ObjectStore
from tests.scoring.made_models import saved


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two versions of the model "mine": 1 is champion, 2 challenger."""
    folder = tmp_path_factory.mktemp("store")
    tracker = open_tracker(f"sqlite:///{folder}/mlflow.db")
    for n, alias in ((4, "first"), (3, "challenger")):
        tracker.register_fit(saved(folder / f"model-{n}", n=n), "mine", n_answers=n, alias=alias)
    versions = open_versions(f"sqlite:///{folder}/mlflow.db")
    versions.make_champion(versions.meant_by("models:/mine/1"))
    return folder


@pytest.fixture
def store(root: Path) -> str:
    return f"sqlite:///{root}/mlflow.db"


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes of what was copied into the folder of models."""
    made: list[str] = []
    kept = pinned_model._kept

    def counted(*arguments: Any) -> Any:
        made.append("copied")
        return kept(*arguments)

    monkeypatch.setattr(pinned_model, "_kept", counted)
    return made


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the store was asked")

    monkeypatch.setattr(pinned_model, "open_versions", refuse)


def left_in(work: Path) -> list[str]:
    return [path.name for path in (work / "models").iterdir() if path.name != "pins"]


# --------------------------------------------------------------------------------------- from the registry


def test_an_alias_is_pinned_to_the_version_that_it_means_now(store: str, root: Path, tmp_path: Path) -> None:
    pinned = resolve_model("models:/mine@champion", tmp_path, store)
    assert (pinned.uri, pinned.name, pinned.version) == ("models:/mine@champion", "mine", "1")
    assert pinned.folder == tmp_path / "models" / pinned.sha256
    assert FittedModel.load(pinned.folder).require_spectrum().n_answers == 4
    assert resolve_model("models:/mine/1", tmp_path, store).sha256 == pinned.sha256


def test_only_the_bundle_is_copied_and_no_code_runs(store: str, root: Path, tmp_path: Path) -> None:
    codes = {path: path.read_text() for path in (root / "mlflow-artifacts").rglob("*.py")}
    assert len(codes) == 2
    for path in codes:
        path.write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()")
    try:
        for uri in ("models:/mine/1", "models:/mine/2"):
            FittedModel.load(resolve_model(uri, tmp_path, store).folder)
    finally:
        for path, original in codes.items():
            path.write_text(original)
    assert not (tmp_path / "ran").exists()
    kinds = {path.suffix for path in (tmp_path / "models").rglob("*") if path.is_file()}
    assert kinds == {".json", ".safetensors"}


def test_a_version_that_was_pinned_asks_nobody(store: str, tmp_path: Path, copies: list[str]) -> None:
    first = resolve_model("models:/mine/2", tmp_path, store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pinned_model, "open_versions", None)
        assert resolve_model("models:/mine/2", tmp_path, store) == first
    assert copies == ["copied"]


def test_an_alias_is_asked_for_each_time_but_copied_once(
    store: str, tmp_path: Path, copies: list[str]
) -> None:
    first = resolve_model("models:/mine@champion", tmp_path, store)
    assert resolve_model("models:/mine@champion", tmp_path, store) == first
    assert copies == ["copied"]
    assert left_in(tmp_path) == [first.sha256]


def test_a_moved_alias_leaves_an_earlier_pin_as_it_is(store: str, tmp_path: Path) -> None:
    before = resolve_model("models:/mine@champion", tmp_path, store)
    versions = open_versions(store)
    versions.make_champion(versions.meant_by("models:/mine/2"))
    try:
        after = resolve_model("models:/mine@champion", tmp_path, store)
    finally:
        versions.make_champion(versions.meant_by("models:/mine/1"))
    assert (before.version, after.version) == ("1", "2")
    assert before.checked() == before
    assert sorted(left_in(tmp_path)) == sorted([before.sha256, after.sha256])


def test_a_pin_of_one_store_is_not_taken_for_that_of_another(store: str, tmp_path: Path) -> None:
    resolve_model("models:/mine/1", tmp_path, store)
    with pytest.raises(DataError, match="there is no MLflow store at"):
        resolve_model("models:/mine/1", tmp_path, f"sqlite:///{tmp_path}/other.db")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (
            "models:/mine@nobody",
            r"no alias 'nobody'; it has challenger \(version 2\), champion \(version 1\)",
        ),
        ("models:/mine/9", "models:/mine/9"),
        ("models:/unknown@champion", "unknown"),
    ],
)
def test_what_the_registry_does_not_have_is_named(store: str, tmp_path: Path, uri: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        resolve_model(uri, tmp_path, store)


@pytest.mark.parametrize("uri", ["models:/mine", "models:/mine/latest", "models:/a/b/1", "runs:/"])
def test_another_form_of_a_registered_model_is_a_usage_error(store: str, tmp_path: Path, uri: str) -> None:
    with pytest.raises((UsageError, DataError)):
        resolve_model(uri, tmp_path, store)


def test_a_missing_store_is_named_with_the_remedy_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        resolve_model("models:/mine@champion", tmp_path, f"sqlite:///{tmp_path}/absent.db")
    for part in (f"{tmp_path}/absent.db", "folder that `sgpu fit` wrote"):
        assert part in str(caught.value)
    assert not (tmp_path / "absent.db").exists()


def test_a_store_that_is_gone_tells_which_version_this_machine_still_has(
    store: str, root: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(root, tmp_path / "store")
    address = f"sqlite:///{copy}/mlflow.db"
    resolve_model("models:/mine@champion", tmp_path, address)
    (copy / "mlflow.db").unlink()
    with pytest.raises(DataError, match=r"still has version 1 of mine: models:/mine/1 needs no store"):
        resolve_model("models:/mine@champion", tmp_path, address)
    assert resolve_model("models:/mine/1", tmp_path, address).version == "1"


def test_a_run_gives_its_model(root: Path, store: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    run = client.create_run("0")
    client.log_artifacts(run.info.run_id, str(root / "model-4"), "fit")
    uri = f"runs:/{run.info.run_id}/fit"
    pinned = resolve_model(uri, tmp_path, store)
    assert pinned.name == f"run-{run.info.run_id}"
    assert pinned.sha256 == resolve_model("models:/mine/1", tmp_path, store).sha256
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pinned_model, "open_versions", None)
        assert resolve_model(uri, tmp_path, store) == pinned


# --------------------------------------------------------------------------------- changed and unsafe files


@pytest.fixture
def registered(store: str, root: Path, tmp_path: Path) -> Iterator[Path]:
    """The bundle of version 1 as it lies in the registry's own storage; put back afterwards."""
    (bundle,) = [
        path.parent
        for path in (root / "mlflow-artifacts").rglob("bundle.json")
        if json.loads(path.read_text())["spectrum"]["n_answers"] == 4
    ]
    shutil.copytree(bundle, tmp_path / "kept")
    yield bundle
    shutil.rmtree(bundle)
    shutil.copytree(tmp_path / "kept", bundle)


@pytest.mark.parametrize("name", ["gp.safetensors", "gp.json", "bundle.json", "profile.json"])
def test_one_changed_byte_in_the_registry_is_refused(
    registered: Path, store: str, tmp_path: Path, name: str
) -> None:
    content = bytearray((registered / name).read_bytes())
    content[len(content) // 2] ^= 1
    (registered / name).write_bytes(content)
    with pytest.raises(IntegrityError, match="they were changed afterwards"):
        resolve_model("models:/mine/1", tmp_path / "work", store)
    assert left_in(tmp_path / "work") == []


def test_weights_that_were_changed_together_with_their_checksums_are_refused(
    registered: Path, store: str, tmp_path: Path
) -> None:
    shutil.rmtree(registered)
    saved(registered, n=4, others=OtherSizes())  # a sound model, but not the one that was registered
    with pytest.raises(IntegrityError, match="registered was"):
        resolve_model("models:/mine/1", tmp_path / "work", store)


def test_a_registered_model_that_was_exchanged_is_not_loaded(registered: Path, store: str) -> None:
    assert load_model("models:/mine@champion", store).require_spectrum().n_answers == 4
    shutil.rmtree(registered)
    saved(registered, n=4, others=OtherSizes())
    for uri in ("models:/mine@champion", "models:/mine/1"):
        with pytest.raises(IntegrityError, match=r"of models:/mine/1 have sha256 .*, registered was"):
            load_model(uri, store)


@pytest.mark.parametrize("name", ["hook.py", "model.pkl", "pytorch_model.bin"])
def test_a_file_that_can_run_code_in_the_bundle_is_refused(
    registered: Path, store: str, tmp_path: Path, name: str
) -> None:
    (registered / name).write_bytes(b"\x80\x04.")
    with pytest.raises(IntegrityError, match=f"{name} is neither safetensors nor JSON"):
        resolve_model("models:/mine/1", tmp_path / "work", store)
    assert left_in(tmp_path / "work") == []


def test_a_link_in_the_bundle_is_refused(registered: Path, store: str, tmp_path: Path) -> None:
    original = (registered / "gp.json").rename(tmp_path / "gp.json")
    (registered / "gp.json").symlink_to(original)
    with pytest.raises(IntegrityError, match="symbolic link"):
        resolve_model("models:/mine/1", tmp_path / "work", store)


def test_a_pinned_copy_that_was_changed_is_refused(store: str, tmp_path: Path) -> None:
    pinned = resolve_model("models:/mine/1", tmp_path, store)
    (pinned.folder / "extra.json").write_text("{}")
    for uri in ("models:/mine/1", "models:/mine@champion"):
        with pytest.raises(IntegrityError, match="Remove the folder and run again"):
            resolve_model(uri, tmp_path, store)
    with pytest.raises(IntegrityError):
        pinned.checked()
    shutil.rmtree(pinned.folder)
    assert resolve_model("models:/mine/1", tmp_path, store) == pinned


# -------------------------------------------------------------------------------------------- from folders


@pytest.mark.parametrize("as_uri", [False, True])
def test_a_folder_is_copied_and_named_by_its_hash(tmp_path: Path, as_uri: bool) -> None:
    folder = saved(tmp_path / "my model")
    pinned = resolve_model(folder.as_uri() if as_uri else str(folder), tmp_path / "work")
    assert (pinned.name, pinned.version) == ("my model", pinned.sha256[:12])
    shutil.rmtree(folder)
    assert FittedModel.load(pinned.checked().folder).require_spectrum().n_answers == 4


def test_the_hash_is_that_of_names_and_contents(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "bundle.json").write_text("{}")
    pinned = resolve_model(str(folder), tmp_path / "work")
    expected = hashlib.sha256(b"bundle.json\0" + hashlib.sha256(b"{}").digest()).hexdigest()
    assert pinned.sha256 == expected


def test_a_folder_in_object_storage_is_copied(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sgpu.storage.location import Location

    Location.of(object_store.uri("models/one")).upload(saved(tmp_path / "one"))
    pinned = resolve_model(object_store.uri("models/one"), tmp_path / "work")
    assert pinned.sha256 == resolve_model(str(tmp_path / "one"), tmp_path / "work").sha256
    object_store.put(f"/{object_store.bucket}/models/one/size_free/run.py", b"1")
    with pytest.raises(IntegrityError, match=r"run\.py"):
        resolve_model(object_store.uri("models/one"), tmp_path / "work")


def test_a_key_in_object_storage_that_leaves_the_folder_is_refused(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    from sgpu.storage.location import Location

    Location.of(object_store.uri("models/two")).upload(saved(tmp_path / "two"))
    connection = http.client.HTTPConnection(urlparse(object_store.url).netloc)
    connection.request("PUT", f"/{object_store.bucket}/models/two/%2E%2E/%2E%2E/evil.json", b"{}")
    assert connection.getresponse().status == 200
    with pytest.raises(IntegrityError, match=r"names the file '\.\./\.\./evil\.json'"):
        resolve_model(object_store.uri("models/two"), tmp_path / "deep" / "work")
    with pytest.raises(IntegrityError, match="does not stay in its folder"):
        load_model(object_store.uri("models/two"))
    assert not list(tmp_path.rglob("evil.json"))


def test_two_runs_at_once_get_one_whole_folder(tmp_path: Path) -> None:
    folder = str(saved(tmp_path / "m"))
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: resolve_model(folder, tmp_path / "work"), range(24)))
    (pinned,) = found
    assert left_in(tmp_path / "work") == [pinned.sha256]


@pytest.mark.parametrize("uri", ["https://example.org/m", "ftp://x/m"])
def test_another_scheme_is_a_usage_error(tmp_path: Path, uri: str) -> None:
    with pytest.raises(UsageError, match="models:/NAME@ALIAS"):
        resolve_model(uri, tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent is no folder"):
        resolve_model(str(tmp_path / "absent"), tmp_path / "work")
