"""Fits in MLflow's model registry, stored as files and code, never as pickles, and the versions of each.

Which versions there are, which one an alias means now, and the files of one.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlparse

import mlflow.pyfunc
from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput
from mlflow.entities.model_registry import ModelVersion, RegisteredModel
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.tracking.context.registry import resolve_tags
from mlflow.types import ColSpec, DataType, Schema
from mlflow.types.schema import Array
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS
from packaging.version import Version as PackageVersion

from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.provenance import code_version, package_version
from sgpu.registry import unknown_name
from sgpu.storage.bundle_files import (
    MOST_FILES,
    bundle_names,
    bundle_sha256,
    checked_name,
    copy_bundle,
    write_bundle,
)
from sgpu.storage.location import BUCKETS, LOCAL, Location
from sgpu.tracking.base import CHAMPION, RegisteredFit, Version, flatten
from sgpu.tracking.store import OpenStore, reading, redact_address

BUNDLE_SHA256 = "sgpu.bundle_sha256"
# What a loaded fit runs on. Given to MLflow, which would otherwise load the model to guess it.
REQUIREMENTS = ("sgpu", "mlflow", "gpytorch", "numpy", "safetensors", "sentence-transformers", "torch")
NUMBERS = ("probability", "sd", "latent_mean", "latent_variance", "p_answer", "confidence")  # null if unknown
SIGNATURE = ModelSignature(
    inputs=Schema(
        [
            ColSpec(Array(DataType.string), "answers"),
            ColSpec(DataType.string, "question", required=False),
        ]
    ),
    outputs=Schema(
        [
            *(ColSpec(DataType.double, name, required=False) for name in NUMBERS),
            ColSpec(DataType.boolean, "unsafe"),
            ColSpec(DataType.string, "no_answer", required=False),
            ColSpec(DataType.string, "answer", required=False),
            ColSpec(DataType.long, "chosen"),
            ColSpec(DataType.string, "by", required=False),
            ColSpec(DataType.string, "declined", required=False),
            ColSpec(DataType.string, "reason", required=False),
        ]
    ),
)


def registered_fit(
    store: OpenStore, bundle: Path, name: str, metadata: Mapping[str, Any], run_id: str | None
) -> RegisteredFit:
    """The version of ``name`` that holds a bundle; a new one, made by a run, if there is none."""
    digest = bundle_sha256(bundle)
    version = _registered_version(store.client, name, digest)
    if version is not None:
        return RegisteredFit(name, version, created=False)
    facts = {**flatten(metadata), "code_version": code_version(), "bundle_sha256": digest}
    with _source_run(store, name, run_id) as source:
        model = _log_model(store, bundle, name, facts, source)
        return RegisteredFit(name, _create_version(store.client, name, model), created=True)


def _log_model(
    store: OpenStore, bundle: Path, name: str, facts: Mapping[str, str], run_id: str
) -> LoggedModel:
    """Store the bundle and the code that loads it, as a logged model of the experiment."""
    client = store.client
    model = client.create_logged_model(
        store.experiment_id, name=name, source_run_id=run_id, params=dict(facts), model_type="sgpu"
    )
    try:
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
        with TemporaryDirectory() as folder:
            target = Path(folder) / "model"
            _save_model(bundle, model, facts, target)
            client.log_model_artifacts(model.model_id, str(target))
    except BaseException:
        client.finalize_logged_model(model.model_id, "FAILED")
        raise
    return client.finalize_logged_model(model.model_id, "READY")


def _save_model(bundle: Path, model: LoggedModel, facts: Mapping[str, str], target: Path) -> None:
    with warnings.catch_warnings():
        # An example would be run through the loaded model, encoder and all, only to check five columns.
        warnings.filterwarnings("ignore", ".*An input example was not provided")
        mlflow.pyfunc.save_model(
            path=str(target),
            mlflow_model=Model(
                artifact_path=model.artifact_location,
                model_uuid=model.model_id,
                model_id=model.model_id,
                run_id=model.source_run_id,
                metadata=dict(facts),
            ),
            python_model=str(Path(__file__).with_name("pyfunc_model.py")),
            artifacts={"bundle": str(bundle.resolve())},
            signature=SIGNATURE,
            pip_requirements=_requirements(),
        )


@contextmanager
def _source_run(store: OpenStore, name: str, run_id: str | None) -> Iterator[str]:
    """The run that made the fit; a run of its own for a fit that was made outside a study."""
    if run_id is not None:
        yield run_id
        return
    own = store.client.create_run(
        store.experiment_id, run_name=f"fit {name}", tags=resolve_tags()
    ).info.run_id
    try:
        yield own
    except BaseException:
        store.client.set_terminated(own, "FAILED")
        raise
    store.client.set_terminated(own, "FINISHED")


def _create_version(client: MlflowClient, name: str, model: LoggedModel) -> int:
    try:
        client.create_registered_model(name, description="SGPU classifier: sampled answers -> probability")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    version = client.create_model_version(
        name,
        source=model.artifact_location,  # a models:/ address would be looked up in MLflow's global store
        run_id=model.source_run_id,
        model_id=model.model_id,
        tags={f"sgpu.{key}": value for key, value in model.params.items()},
    )
    # What MLflow's pages follow from the logged model to its version.
    link = json.dumps([{"name": name, "version": version.version}])
    client.set_logged_model_tags(model.model_id, {MLFLOW_MODEL_VERSIONS: link})
    return int(version.version)


def _registered_version(client: MlflowClient, name: str, digest: str) -> int | None:
    """The newest version of ``name`` that holds exactly this bundle."""
    versions = client.search_model_versions(f"{_called(name)} and tags.`{BUNDLE_SHA256}` = '{digest}'")
    return max((int(version.version) for version in versions), default=None)


def _called(name: str) -> str:
    """The filter of a model's versions."""
    return "name = '{}'".format(name.replace("'", "''"))


def _requirements() -> list[str]:
    """Exact versions, without the local part (``+cpu``) that no index serves."""
    return [
        f"{package}=={PackageVersion(version).public}"
        for package in REQUIREMENTS
        if (version := package_version(package)) is not None
    ]


_MODEL = re.compile(r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>[0-9]+))")


class MlflowVersions:
    """Registered models to be read, in the store at an address.

    Everything raises DataError if the store is down or lacks what is asked. A store that does not answer is
    given up after half a minute, not after MLflow's minutes.
    """

    def __init__(self, store: str) -> None:
        self.store = store

    def all_of(self, name: str) -> list[Version]:
        """All versions of a model, newest first."""
        with reading(self.store, f"models:/{name}") as client:
            aliases = self._registered(client, name).aliases
            versions = [_version(v, aliases) for v in client.search_model_versions(_called(name))]
        return sorted(versions, key=lambda version: -version.version)

    def meant_by(self, uri: str) -> Version:
        """What models:/NAME@ALIAS or models:/NAME/VERSION means now; UsageError for another form."""
        parts = _MODEL.fullmatch(uri)
        if parts is None:
            raise UsageError(f"{uri} is neither models:/NAME@ALIAS nor models:/NAME/VERSION")
        name, alias, version = parts["name"], parts["alias"], parts["version"]
        with reading(self.store, uri) as client:
            aliases = self._registered(client, name).aliases
            if alias is not None and alias not in aliases:
                aliased = ", ".join(f"{key} (version {number})" for key, number in sorted(aliases.items()))
                raise DataError(
                    f"model {name!r} has no alias {alias!r}; it has {aliased or 'none'}. Set champion with "
                    f"`sgpu model promote {name} VERSION`, or give models:/{name}/VERSION."
                )
            return _version(client.get_model_version(name, str(version or aliases[alias])), aliases)

    def fetch(self, version: Version, target: Path) -> None:
        """Copy the bundle of a version to the new folder ``target``; none of the code beside it.

        Raises IntegrityError where it is not the bundle that was registered, or holds what no model holds.
        """
        with reading(self.store, version.uri) as client:
            address = client.get_model_version_download_uri(version.name, str(version.version))
        self._copy(address, version.uri, target)
        sha256 = bundle_sha256(target)
        if version.sha256 not in (None, sha256):
            raise IntegrityError(
                f"the files of {version.uri} have sha256 {sha256}, registered was {version.sha256}: they "
                "were changed afterwards. Register the fit again from its own folder."
            )

    def fetch_run(self, uri: str, target: Path) -> None:
        """Copy the one bundle of runs:/ID/PATH or mlflow-artifacts:/PATH to the new folder ``target``."""
        self._copy(uri, uri, target)

    def make_champion(self, version: Version) -> int | None:
        """Move the alias champion to this version; return the one that had it, if there was one."""
        with reading(self.store, version.uri) as client:
            before = client.get_registered_model(version.name).aliases.get(CHAMPION)
            client.set_registered_model_alias(version.name, CHAMPION, str(version.version))
        return None if before is None else int(before)

    def _registered(self, client: MlflowClient, name: str) -> RegisteredModel:
        """Return the registered model ``name``; DataError that lists those that exist if it does not."""
        try:
            return client.get_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            known = sorted(model.name for model in client.search_registered_models())
            raise DataError(
                f"{redact_address(self.store)}: {unknown_name('registered model', name, known)}"
            ) from error

    def _copy(self, address: str, uri: str, target: Path) -> None:
        """From this machine or a bucket directly, from anywhere else over MLflow."""
        if urlparse(address).scheme in ("", LOCAL, *BUCKETS):
            copy_bundle(Location.of(address), uri, target)
            return
        with reading(self.store, uri), TemporaryDirectory(prefix="sgpu-model-") as scratch:
            files = get_artifact_repository(address, tracking_uri=self.store, registry_uri=self.store)
            folder, names = bundle_names(_listed(files, uri), uri)
            for name in names:
                files.download_artifacts(checked_name(folder + name, uri), dst_path=scratch)
            write_bundle({name: Path(scratch, folder, name).read_bytes for name in names}, target)


def _version(version: ModelVersion, aliases: Mapping[str, Any]) -> Version:
    number = int(version.version)
    return Version(
        name=version.name,
        version=number,
        # The registered model's own list: that of a version lags behind in some stores.
        aliases=tuple(sorted(alias for alias, of in aliases.items() if int(of) == number)),
        sha256=version.tags.get(BUNDLE_SHA256),
        created=datetime.fromtimestamp(version.creation_timestamp / 1000, UTC).isoformat(timespec="seconds"),
        n_answers=version.tags.get("sgpu.n_answers"),
    )


def _listed(files: ArtifactRepository, uri: str) -> dict[str, int]:
    """Every file of a repository: its path and bytes."""
    sizes: dict[str, int] = {}
    folders, requests = [""], 0
    while folders:
        requests += 1
        for info in files.list_artifacts(folders.pop() or None):
            if info.is_dir:
                folders.append(info.path)
            else:
                sizes[info.path] = int(info.file_size or 0)
        if requests + len(sizes) + len(folders) > MOST_FILES:
            raise IntegrityError(f"{uri} holds more than {MOST_FILES} files and folders: no fitted model")
    return sizes
