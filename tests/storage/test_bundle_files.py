"""Files of a model: what may be among them, what they hash to, and copies that hold nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sgpu.errors import DataError, IntegrityError
from sgpu.storage import bundle_files
from sgpu.storage.bundle_files import (
    MOST_BYTES,
    MOST_FILES,
    bundle_names,
    bundle_sha256,
    checked_name,
    copy_bundle,
    write_bundle,
)
from sgpu.storage.location import Location
from tests.object_store import ObjectStore


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "source" / "artifacts" / "bundle"
    (folder / "size_free").mkdir(parents=True)
    (folder / "bundle.json").write_text("{}")
    (folder / "size_free" / "gp.safetensors").write_bytes(b"numbers")
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_the_hash_depends_on_every_byte_and_every_name(bundle: Path) -> None:
    first = bundle_sha256(bundle)
    (bundle / "bundle.json").write_text("{ }")
    changed = bundle_sha256(bundle)
    (bundle / "bundle.json").write_text("{}")
    assert bundle_sha256(bundle) == first
    (bundle / "size_free" / "gp.safetensors").rename(bundle / "gp.safetensors")
    assert len({first, changed, bundle_sha256(bundle)}) == 3


def test_a_copy_has_the_hash_of_the_source(bundle: Path, tmp_path: Path) -> None:
    copy_bundle(Location.of(bundle), "x", tmp_path / "copy")
    assert bundle_sha256(tmp_path / "copy") == bundle_sha256(bundle)


def test_code_beside_the_bundle_is_neither_copied_nor_refused(bundle: Path, tmp_path: Path) -> None:
    root = tmp_path / "source"
    (root / "python_model.py").write_text("raise SystemExit")
    (root / "model.pkl").write_bytes(b"\x80")
    copy_bundle(Location.of(root), "x", tmp_path / "copy")
    assert names_in(tmp_path / "copy") == ["bundle.json", "size_free/gp.safetensors"]


@pytest.mark.parametrize("name", ["code.py", "model.pkl", "pytorch_model.bin", "size_free/hook.so", "README"])
def test_another_kind_of_file_in_the_bundle_is_refused(bundle: Path, tmp_path: Path, name: str) -> None:
    (bundle / name).write_bytes(b"")
    with pytest.raises(IntegrityError, match="neither safetensors nor JSON"):
        copy_bundle(Location.of(bundle), "x", tmp_path / "copy")
    with pytest.raises(IntegrityError, match="neither safetensors nor JSON"):
        bundle_sha256(bundle)


@pytest.mark.parametrize("place", ["gp.json", "heads"])
def test_a_link_in_the_bundle_is_refused(bundle: Path, tmp_path: Path, place: str) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "secret.json").write_text("{}")
    (bundle / place).symlink_to(target / "secret.json" if place.endswith(".json") else target)
    with pytest.raises(IntegrityError, match="symbolic link"):
        copy_bundle(Location.of(bundle), "x", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_pipe_in_the_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    os.mkfifo(bundle / "gp.json")
    with pytest.raises(IntegrityError, match="no plain file"):
        bundle_sha256(bundle)


@pytest.mark.parametrize(
    "name",
    ["../x.json", "a/../../x.json", "/etc/x.json", "a\\x.json", "a//x.json", "./x.json", "x\n.json", ""],
)
def test_a_name_that_leaves_its_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="does not stay in its folder"):
        checked_name(name, "s3://bucket/model")
    with pytest.raises(IntegrityError):
        write_bundle({name: lambda: b"{}"}, tmp_path / "deep" / "folder")
    assert names_in(tmp_path) == []


def test_a_listing_that_leaves_the_bundle_is_refused() -> None:
    with pytest.raises(IntegrityError, match="does not stay in its folder"):
        bundle_names({"m/bundle.json": 1, "m/../../x.json": 1}, "s3://bucket")


@pytest.mark.parametrize(("names", "found"), [([], 0), (["a/bundle.json", "b/bundle.json"], 2)])
def test_no_bundle_or_two_are_refused(names: list[str], found: int) -> None:
    with pytest.raises(DataError, match=f"holds {found} fitted models"):
        bundle_names(dict.fromkeys(names, 1), "s3://bucket")


def test_more_than_a_model_can_hold_is_refused() -> None:
    with pytest.raises(IntegrityError, match="Check the address"):
        bundle_names({"bundle.json": MOST_BYTES + 1}, "x")
    many = {f"{i}.json": 1 for i in range(MOST_FILES)}
    with pytest.raises(IntegrityError, match="Check the address"):
        bundle_names({"bundle.json": 1, **many}, "x")


def test_a_folder_reached_by_a_link_is_read(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(bundle)
    copy_bundle(Location.of(tmp_path / "current"), "x", tmp_path / "copy")
    assert bundle_sha256(tmp_path / "copy") == bundle_sha256(bundle)


def test_the_bound_on_bytes_holds_in_object_storage(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_files, "MOST_BYTES", 1000)
    place = Location.of(object_store.uri("model"))
    (place / "bundle.json").write_bytes(b"{}")
    copy_bundle(place, "model", tmp_path / "small")
    assert names_in(tmp_path / "small") == ["bundle.json"]
    (place / "gp.safetensors").write_bytes(bytes(1001))
    with pytest.raises(IntegrityError, match=r"2 files of 1003 bytes together; .* at most 1000 and 1000"):
        copy_bundle(place, "model", tmp_path / "large")
