"""Small sources of CIFAR-10 and Imagenette in the schema and layouts of the real ones."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CIFAR_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
IMAGENETTE_NAMES = [
    "tench",
    "English springer",
    "cassette player",
    "chain saw",
    "church",
    "French horn",
    "garbage truck",
    "gas pump",
    "golf ball",
    "parachute",
]
WNIDS = [
    "n01440764",
    "n02102040",
    "n02979186",
    "n03000684",
    "n03028079",
    "n03394916",
    "n03417042",
    "n03425413",
    "n03445777",
    "n03888257",
]
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def image_bytes(number: int, side: int = 32, kind: str = "PNG") -> bytes:
    """A picture of one colour that differs by number."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (number % 256, 7 * number % 256, 13 * number % 256)).save(buffer, kind)
    return buffer.getvalue()


def write_labelled(
    file: Path, rows: Sequence[dict[str, Any]], image_column: str, names: Sequence[str] | None
) -> None:
    """Images and labels in a Parquet file, with the class names beside the schema as `datasets` does."""
    features = {"label": {"names": names, "_type": "ClassLabel"}, image_column: {"_type": "Image"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})} if names else None
    schema = pa.schema([(image_column, IMAGE), ("label", pa.int64())], metadata=metadata)
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), file)


def cifar10_rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    """``count`` rows whose labels go round."""
    return [{"img": {"bytes": image_bytes(first + i), "path": None}, "label": i % 10} for i in range(count)]


def write_cifar10(folder: Path, n_train: int = 60, n_test: int = 40) -> Path:
    """The Hub's Parquet files."""
    for split, count, first in (("train", n_train, 0), ("test", n_test, 100)):
        file = folder / "plain_text" / f"{split}-00000-of-00001.parquet"
        write_labelled(file, cifar10_rows(count, first), "img", CIFAR_NAMES)
    return folder


def cifar10_record(label: int, number: int) -> bytes:
    """One label byte, then the red, green and blue planes, whose first row alone is not one colour."""
    plane = bytes(range(32)) + bytes([number % 256]) * (1024 - 32)
    return bytes([label]) + plane + bytes([7]) * 1024 + bytes([200]) * 1024


def write_cifar10_binary(folder: Path, per_batch: int = 12, packed: bool = False) -> Path:
    """The six batches of the binary version, in a folder or in the archive."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = {
        name: b"".join(cifar10_record(i % 10, 20 * b + i) for i in range(per_batch))
        for b, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"])
    }
    if packed:
        write_tar(folder / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", batches)
        return folder
    (folder / "cifar-10-batches-bin").mkdir()
    for name, content in batches.items():
        (folder / "cifar-10-batches-bin" / name).write_bytes(content)
    return folder


def write_tar(archive: Path, top: str, files: dict[str, bytes]) -> None:
    with tarfile.open(archive, "w:gz") as opened:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size = len(content)
            opened.addfile(entry, io.BytesIO(content))


def imagenette_files(train_each: int, test_each: int) -> dict[str, bytes]:
    """Image by name below the top folder, with the file that the archive has beside them."""
    files = {"noisy_imagenette.csv": b"path,noisy_labels_0\n"}
    for part, count, first in (("train", train_each, 0), ("val", test_each, 500)):
        for c, wnid in enumerate(WNIDS):
            for i in range(count):
                name = f"{part}/{wnid}/{wnid}_{first + i}.JPEG"
                files[name] = image_bytes(first + 10 * i + c, kind="JPEG")
    return files


def write_imagenette(
    folder: Path, train_each: int = 6, test_each: int = 4, packed: bool = False, size: str = "-320"
) -> Path:
    """The authors' layout, in folders or in the archive."""
    files = imagenette_files(train_each, test_each)
    folder.mkdir(parents=True, exist_ok=True)
    if packed:
        write_tar(folder / f"imagenette2{size}.tgz", f"imagenette2{size}", files)
        return folder
    for name, content in files.items():
        file = folder / f"imagenette2{size}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


def write_imagenette_hub(
    folder: Path, train_each: int = 6, test_each: int = 4, named: bool = True, size: str = "320px"
) -> Path:
    """The Hub's Parquet files (branch refs/convert/parquet), with or without the names of the images."""
    files = imagenette_files(train_each, test_each)
    for part, split in (("train", "train"), ("val", "validation")):
        rows = [
            {
                "image": {"bytes": content, "path": Path(name).name if named else None},
                "label": WNIDS.index(Path(name).parent.name),
            }
            for name, content in files.items()
            if name.startswith(f"{part}/")
        ]
        write_labelled(folder / size / split / "0000.parquet", rows, "image", IMAGENETTE_NAMES)
    return folder
