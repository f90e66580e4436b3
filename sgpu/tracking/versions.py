"""Versions of registered models: which there are, which one an alias means now, and the files of one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlparse

from mlflow.entities.model_registry import ModelVersion
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.storage.bundle_files import (
    MOST_FILES,
    bundle_names,
    bundle_sha256,
    checked_name,
    copy_bundle,
    write_bundle,
)
from sgpu.storage.location import BUCKETS, LOCAL, Location
from sgpu.tracking.base import Version
from sgpu.tracking.fits import BUNDLE_SHA256, promote
from sgpu.tracking.reading import reading

_MODEL = re.compile(r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>[0-9]+))")


class MlflowVersions:
    """`sgpu.tracking.Versions` in the store at an address."""

    def __init__(self, store: str) -> None:
        self.store = store

    def all_of(self, name: str) -> list[Version]:
        with reading(self.store, f"models:/{name}") as client:
            aliases = client.get_registered_model(name).aliases
            quoted = name.replace("'", "''")
            found = [_version(one, aliases) for one in client.search_model_versions(f"name = '{quoted}'")]
        return sorted(found, key=lambda version: -version.version)

    def meant_by(self, uri: str) -> Version:
        wanted = _MODEL.fullmatch(uri)
        if wanted is None:
            raise UsageError(f"{uri} is neither models:/NAME@ALIAS nor models:/NAME/VERSION")
        name, alias, version = wanted["name"], wanted["alias"], wanted["version"]
        with reading(self.store, uri) as client:
            aliases = client.get_registered_model(name).aliases
            if alias is not None and alias not in aliases:
                known = ", ".join(f"{one} (version {number})" for one, number in sorted(aliases.items()))
                raise DataError(
                    f"model {name!r} has no alias {alias!r}; it has {known or 'none'}. Set champion with "
                    f"`sgpu model promote {name} VERSION`, or give models:/{name}/VERSION."
                )
            return _version(client.get_model_version(name, str(version or aliases[alias])), aliases)

    def fetch(self, version: Version, target: Path) -> None:
        with reading(self.store, version.uri) as client:
            place = client.get_model_version_download_uri(version.name, str(version.version))
        self._copy(place, version.uri, target)
        found = bundle_sha256(target)
        if version.sha256 not in (None, found):
            raise IntegrityError(
                f"the files of {version.uri} have sha256 {found}, registered was {version.sha256}: they "
                "were changed afterwards. Register the fit again from its own folder."
            )

    def fetch_run(self, uri: str, target: Path) -> None:
        self._copy(uri, uri, target)

    def make_champion(self, version: Version) -> int | None:
        with reading(self.store, version.uri) as client:
            return promote(client, version.name, version.version)

    def _copy(self, place: str, uri: str, target: Path) -> None:
        """From this machine or a bucket directly, from anywhere else over MLflow."""
        if urlparse(place).scheme in ("", LOCAL, *BUCKETS):
            copy_bundle(Location.of(place), uri, target)
            return
        with reading(self.store, uri), TemporaryDirectory(prefix="sgpu-model-") as scratch:
            files = get_artifact_repository(place, tracking_uri=self.store, registry_uri=self.store)
            folder, names = bundle_names(_listed(files, uri), uri)
            for name in names:
                files.download_artifacts(checked_name(folder + name, uri), dst_path=scratch)
            write_bundle({name: Path(scratch, folder, name).read_bytes for name in names}, target)


def _version(found: ModelVersion, aliases: Mapping[str, Any]) -> Version:
    number = int(found.version)
    return Version(
        name=found.name,
        version=number,
        # The registered model's own list: that of a version lags behind in some stores.
        aliases=tuple(sorted(alias for alias, of in aliases.items() if int(of) == number)),
        sha256=found.tags.get(BUNDLE_SHA256),
        created=datetime.fromtimestamp(found.creation_timestamp / 1000, UTC).isoformat(timespec="seconds"),
        n_answers=found.tags.get("sgpu.n_answers"),
    )


def _listed(files: ArtifactRepository, uri: str) -> dict[str, int]:
    """Every file of a repository: its path and bytes."""
    found: dict[str, int] = {}
    waiting, asked = [""], 0
    while waiting:
        asked += 1
        for info in files.list_artifacts(waiting.pop() or None):
            if info.is_dir:
                waiting.append(info.path)
            else:
                found[info.path] = int(info.file_size or 0)
        if asked + len(found) + len(waiting) > MOST_FILES:
            raise IntegrityError(f"{uri} holds more than {MOST_FILES} files and folders: no fitted model")
    return found
