"""Fits in MLflow's model registry: stored as files and code, never as pickles."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow.pyfunc
from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.tracking.context.registry import resolve_tags
from mlflow.types import ColSpec, DataType, Schema
from mlflow.types.schema import Array
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS
from packaging.version import Version

from sgpu.errors import UsageError
from sgpu.provenance import code_version, package_version
from sgpu.storage.bundle_files import bundle_sha256
from sgpu.tracking.base import CHAMPION, RegisteredFit, flatten
from sgpu.tracking.store import OpenStore

BUNDLE_SHA256 = "sgpu.bundle_sha256"
# What a loaded fit runs on. Given to MLflow, which would otherwise load the model to guess it.
REQUIREMENTS = ("sgpu", "mlflow", "gpytorch", "numpy", "safetensors", "sentence-transformers", "torch")
SIGNATURE = ModelSignature(
    inputs=Schema([ColSpec(Array(DataType.string), "answers")]),
    outputs=Schema(
        [
            ColSpec(DataType.double, "probability"),
            ColSpec(DataType.double, "sd"),
            ColSpec(DataType.double, "latent_mean"),
            ColSpec(DataType.double, "latent_variance"),
            ColSpec(DataType.boolean, "unsafe"),
        ]
    ),
)


def register_fit(
    store: OpenStore,
    bundle: Path,
    name: str,
    n_answers: int,
    alias: str | None,
    metadata: Mapping[str, Any],
    run_id: str | None,
) -> RegisteredFit:
    """See `sgpu.tracking.Tracker.register_fit`."""
    if alias == CHAMPION:
        raise UsageError(
            f"registering a fit never moves the alias {CHAMPION!r}; register it under another alias, "
            "compare it, then promote its version"
        )
    digest = bundle_sha256(bundle)
    version = _registered_version(store.client, name, digest)
    created = version is None
    if version is None:
        facts = {
            **flatten(metadata),
            "n_answers": str(n_answers),
            "code_version": code_version(),
            "bundle_sha256": digest,
        }
        with _source_run(store, name, run_id) as source:
            model = _log_model(store, bundle, name, facts, source)
            version = _create_version(store.client, name, model)
    if alias is not None:
        store.client.set_registered_model_alias(name, alias, str(version))
    return RegisteredFit(name, version, created)


def promote(client: MlflowClient, name: str, version: int) -> int | None:
    """See `sgpu.tracking.Tracker.promote`."""
    before = client.get_registered_model(name).aliases.get(CHAMPION)
    client.set_registered_model_alias(name, CHAMPION, str(version))
    return None if before is None else int(before)


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
        with tempfile.TemporaryDirectory() as folder:
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
    quoted = name.replace("'", "''")
    versions = client.search_model_versions(f"name = '{quoted}' and tags.`{BUNDLE_SHA256}` = '{digest}'")
    return max((int(version.version) for version in versions), default=None)


def _requirements() -> list[str]:
    """Exact versions, without the local part (``+cpu``) that no index serves."""
    pinned = []
    for package in REQUIREMENTS:
        version = package_version(package)
        if version is not None:
            pinned.append(f"{package}=={Version(version).public}")
    return pinned
