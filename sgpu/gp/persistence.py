"""What is fitted as two files: NAME.safetensors with the numbers, NAME.json with everything else.

The classifier ("gp"), probes and training profiles are kept so. The folders of fits are here as well, as
paths on this machine and published whole, and the files of rows that they are made from. No format that can
run code is written or read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from sgpu.errors import DataError, IntegrityError
from sgpu.hashing import sha256_hex
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import read_arrow, write_arrow
from sgpu.storage.whole import draft_of_file, draft_of_folder, keep_first, replace_file

if TYPE_CHECKING:
    from sgpu.gp.fitting import TrainingRows

FORMAT = 1  # of all three kinds
NAME = "gp"  # of the classifier's files
DESCRIPTION = f"{NAME}.json"
CODE_SUFFIXES = {".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth"}


def write_files(
    folder: Path, name: str, description: Mapping[str, Any], numbers: Mapping[str, NDArray[Any]]
) -> None:
    """Write both files, the description last, so that a folder that holds it is complete.

    Equal contents write equal bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    payload = safetensors.numpy.save({key: np.ascontiguousarray(rows) for key, rows in numbers.items()})
    replace_file(folder / f"{name}.safetensors", payload)
    content = {"format": FORMAT, **description, "sha256": sha256_hex(payload)}
    write_json(folder / f"{name}.json", content)


def read_files(folder: Path, name: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The description and the numbers that `write_files` wrote.

    Raises IntegrityError for a checksum that does not fit, another format version, a missing or broken file.
    """
    path = folder / f"{name}.safetensors"
    description, payload = read_json(folder / f"{name}.json", FORMAT), _bytes(path)
    sha256 = sha256_hex(payload)
    if sha256 != description.get("sha256"):
        raise IntegrityError(
            f"{path} has sha256 {sha256}, {name}.json says {description.get('sha256')}; "
            "one of them was changed or cut short. Restore the folder or fit again."
        )
    try:
        return description, safetensors.numpy.load(payload)
    except (SafetensorError, KeyError) as error:  # a KeyError names a type of numbers that NumPy has not
        raise IntegrityError(f"{path} is not a safetensors file that can be read: {error}") from error


def refuse_code(folder: Path) -> None:
    """Raise IntegrityError if the folder holds a file of a kind that can run code when it is loaded."""
    if not folder.is_dir():
        raise IntegrityError(f"{folder} is not a folder; give the one that a fit was saved to")
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in CODE_SUFFIXES:
            raise IntegrityError(
                f"{path} is of a kind that can run code when it is loaded; "
                f"a fit is {NAME}.safetensors and {DESCRIPTION} and nothing else. "
                "Remove it if you trust the rest."
            )


def read_json(path: Path, version: int) -> dict[str, Any]:
    """The object in a JSON file; IntegrityError unless it is one, of this format version."""
    try:
        content = json.loads(_bytes(path))
    except ValueError as error:
        raise IntegrityError(f"{path} is not JSON: {error}. Restore it or fit again.") from error
    if not isinstance(content, dict) or content.get("format") != version:
        written = content.get("format") if isinstance(content, dict) else None
        raise IntegrityError(
            f"{path} has format {written!r}, this version reads {version}; use the version that wrote it"
        )
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file in one step; NaN is refused."""
    replace_file(path, (json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n").encode())


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise IntegrityError(f"{path} is missing; the folder is not a complete fit. Fit again.") from error


def resolved(location: Path | Location) -> Path | Location:
    """Without symbolic links, so that all workers mean the same file."""
    return location.resolve() if isinstance(location, Path) else location


class Fitted(Protocol):
    """A fit in memory."""

    def save(self, folder: Path | str) -> None:
        """Write the fit as data that cannot run code."""


def publish(fitted: Fitted, location: Location, description: str) -> None:
    """Make the folder appear whole: a worker killed half-way leaves nothing that looks finished."""
    if not location.is_local:
        with TemporaryDirectory(prefix="sgpu-fit-") as temporary:
            fitted.save(temporary)
            # There is no renaming in object storage; the description makes a folder finished, so it is last.
            location.upload(Path(temporary), last=description)
        return
    folder = location.local
    with draft_of_folder(folder) as draft:
        fitted.save(draft)
        try:
            keep_first(draft, folder, description)  # equal fits are equal files
        except OSError as error:
            raise IntegrityError(f"{folder} is there but holds no fit; remove it and run again") from error


COLUMNS = ("eigenvalues", "label", "weight", "cell")


def write_training_rows(path: Path, rows: TrainingRows) -> None:
    """Write training rows as an Arrow file for a FitTask.

    Pooled rows have ``cells`` (M,), and ``weights`` (M,) where they do not count alike. Readers see the whole
    file or none.
    """
    values = pa.FixedSizeListArray.from_arrays(pa.array(rows.x.ravel(), pa.float64()), rows.x.shape[1])
    table = pa.table({"eigenvalues": values, "label": pa.array(rows.y, pa.int64())})
    if rows.weights is not None:
        table = table.append_column("weight", pa.array(rows.weights, pa.float64()))
    if rows.cells is not None:
        table = table.append_column("cell", pa.array(rows.cells, pa.int64()))
    with draft_of_file(path) as draft:
        write_arrow(str(draft), table.to_batches(), table.schema)


def read_pool(path: Path) -> TrainingRows:
    """All columns of a file of `write_training_rows`; DataError if it is none."""
    from sgpu.gp.fitting import TrainingRows  # loads torch, which what reads other files here does not need

    try:
        table = read_arrow(path, COLUMNS)
        values = table["eigenvalues"].combine_chunks()
        spectra = values.flatten().to_numpy().reshape(len(values), values.type.list_size)
        # A copy: what Arrow hands out cannot be written to, and torch warns of that.
        optional = {
            name: table[name].to_numpy().copy() for name in ("weight", "cell") if name in table.column_names
        }
        return TrainingRows(spectra, table["label"].to_numpy(), optional.get("weight"), optional.get("cell"))
    except (OSError, KeyError, pa.ArrowException, AttributeError, ValueError) as error:
        raise DataError(
            f"{path} is not a file of training rows: {error}. Remove it and run again."
        ) from error
