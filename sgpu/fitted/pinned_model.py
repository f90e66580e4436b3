"""From a model's URI to its files: what an alias means at one moment, with the files on this machine.

The files are copied once into a folder that is named by their hash. A run that goes on with a pinned model
asks nobody, so that neither a moved alias nor a store that is down can change what it computes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import urlparse

from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.hashing import sha256_hex
from sgpu.storage.bundle_files import bundle_sha256, copy_bundle
from sgpu.storage.location import BUCKETS, LOCAL, Location
from sgpu.storage.whole import draft_of_folder, keep_first, replace_file
from sgpu.tracking import open_versions, store_address

MODELS, PINS = "models", "pins"
_REGISTERED = ("models", "runs", "mlflow-artifacts")
_FORM = (
    "models:/NAME@ALIAS, models:/NAME/VERSION, runs:/ID/PATH, mlflow-artifacts:/PATH, a folder, or file://, "
    "s3:// or gs://"
)


@dataclass(frozen=True)
class PinnedModel:
    """``uri`` as it was given; ``name`` and ``version`` say what it was, ``sha256`` which files.

    A model that is not from a registry has the name of its folder, and 12 digits of its hash as version.
    """

    uri: str
    name: str
    version: str
    sha256: str
    folder: Path

    def checked(self) -> PinnedModel:
        """This model, if its files are what they were; IntegrityError otherwise."""
        sha256 = bundle_sha256(self.folder)
        if sha256 != self.sha256:
            raise IntegrityError(
                f"the files in {self.folder} have sha256 {sha256}, pinned was {self.sha256}: they were "
                "changed. Remove the folder and run again; it is copied anew."
            )
        return self


def resolve_model(uri: str, work: Path, tracking_uri: str | None = None) -> PinnedModel:
    """Pin what ``uri`` means now, with its files in ``work``/models/<sha256>/.

    A form that always means the same (models:/NAME/VERSION, runs:/) and whose files are there asks nobody;
    an alias is looked up, and its files are copied only if they are new. ``tracking_uri`` as
    `sgpu.tracking.store_address`. Raises UsageError for another form, DataError where there is no model or
    the store is down, IntegrityError for changed files, links or anything but safetensors and JSON.
    """
    scheme = urlparse(uri).scheme
    models = Path(work) / MODELS
    if scheme in _REGISTERED:
        return _Registered(uri, models, tracking_uri).resolved()
    if "://" in uri and scheme not in (LOCAL, *BUCKETS):
        raise UsageError(f"cannot open a model at {uri!r}; give {_FORM}")
    location = Location.of(uri)
    if location.is_local and not location.local.is_dir():
        raise DataError(f"{uri} is no folder; give {_FORM}")
    return _kept(models, uri, location.name, lambda target: copy_bundle(location, uri, target))


class _Registered:
    """A URI of MLflow in one store, and what was pinned for it before."""

    def __init__(self, uri: str, models: Path, tracking_uri: str | None) -> None:
        self.uri, self._models = uri, models
        self._store, self._tracking_uri = store_address(tracking_uri), tracking_uri

    def resolved(self) -> PinnedModel:
        scheme, _, path = self.uri.partition(":/")
        means_the_same = "@" not in self.uri and scheme != "mlflow-artifacts"
        if means_the_same and (before := self._pinned(self.uri)):
            return before
        if scheme != "models":
            name = f"run-{path.partition('/')[0]}" if scheme == "runs" else PurePosixPath(path).name
            fetch_run = partial(open_versions(self._tracking_uri).fetch_run, self.uri)
            return self._pin(_kept(self._models, self.uri, name, fetch_run))
        try:
            versions = open_versions(self._tracking_uri)
            version = versions.meant_by(self.uri)
        except DataError as error:
            if before := self._pinned(self.uri):
                raise DataError(
                    f"{error} This machine still has version {before.version} of {before.name}: "
                    f"models:/{before.name}/{before.version} needs no store."
                ) from error
            raise
        made = self._pinned(version.uri)
        if made is None:
            fetch = partial(versions.fetch, version)
            made = self._pin(_kept(self._models, version.uri, version.name, fetch, str(version.version)))
        return self._pin(replace(made, uri=self.uri))

    def _record(self, uri: str) -> Path:
        key = sha256_hex(f"{self._store}\n{uri}")
        return self._models / PINS / f"{key}.json"

    def _pinned(self, uri: str) -> PinnedModel | None:
        """What was pinned for a URI of this store, if its files are there; IntegrityError if changed."""
        try:
            content = json.loads(self._record(uri).read_bytes())
            sha256, name, version = content["sha256"], content["name"], content["version"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        folder = self._models / str(sha256)
        return PinnedModel(uri, name, version, sha256, folder).checked() if folder.is_dir() else None

    def _pin(self, model: PinnedModel) -> PinnedModel:
        record = self._record(model.uri)
        record.parent.mkdir(parents=True, exist_ok=True)
        replace_file(record, json.dumps(asdict(model), indent=1, default=str).encode())
        return model


def _kept(models: Path, uri: str, name: str, copy: Callable[[Path], None], version: str = "") -> PinnedModel:
    """The model of the files that ``copy`` writes, which lie whole in the folder that their hash names."""
    with draft_of_folder(models / "model") as draft:
        copy(draft)
        sha256 = bundle_sha256(draft)
        folder = models / sha256
        if not folder.is_dir():
            keep_first(draft, folder)
    return PinnedModel(uri, name, version or sha256[:12], sha256, folder).checked()
