"""CIFAR-10: which of ten objects a 32 x 32 image shows (Krizhevsky, 2009).

Read from the Parquet files of the Hub, or from the binary version of the authors' site. The Python version is
pickled and is not opened.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, LoadRequest, Source
from sgpu.datasets.image_files import FileImage, MemberImage, members
from sgpu.datasets.source_rows import DatasetRow, SourceReading, files_of_split
from sgpu.datasets.sources.class_images import CIFAR_10, class_source, labelled_rows, names
from sgpu.errors import DataError

MOST_ROWS = 50_000  # of a pool
SIDE = 32
PIXELS = 3 * SIDE * SIDE
RECORD = 1 + PIXELS
BATCHES = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}
ARCHIVE = "cifar-10-binary.tar.gz"
PICKLED = ("cifar-10-python.tar.gz", "data_batch_[1-5]", "test_batch", "batches.meta")
Batch = FileImage | MemberImage


@dataclass(frozen=True)
class PixelRecord:
    """One record of a binary batch, given as an uncompressed PNG file: the same bytes on every machine."""

    batch: Batch
    index: int

    @property
    def order(self) -> tuple[str, int, str]:
        archive, position, member = self.batch.order
        return (archive, position * MOST_ROWS + self.index, member)

    def read(self) -> bytes:
        """See `sgpu.datasets.base.ImageReference`."""
        start = self.index * RECORD + 1
        return _png(_content(self.batch)[start : start + PIXELS])


def load_cifar10(request: LoadRequest) -> Source:
    """Load both pools, a class being the stratum. Raises DataError, UsageError."""
    reading = SourceReading.without_options(CARD, request)
    root = reading.root
    if files_of_split(root, *CARD.pools):
        hub = {pool: reading.parquet_files(root, pool) for pool in CARD.pools}
        return class_source(
            reading, CIFAR_10, {pool: labelled_rows(hub[pool], "img", CIFAR_10) for pool in hub}
        )
    batches = _batches(reading)
    rows = {pool: _records([batches[name] for name in batch_names]) for pool, batch_names in BATCHES.items()}
    note = "Ids count the records of the batches 1 to 5 in this order; the Hub's may be another."
    return class_source(reading, CIFAR_10, rows, [note])


def _batches(reading: SourceReading) -> dict[str, Batch]:
    """Return the six batches by name, from files or from the archive."""
    root = reading.root
    batches: dict[str, Batch] = {file.name: FileImage(file) for file in sorted(root.rglob("*_batch*.bin"))}
    for archive in [] if batches else sorted(root.rglob(ARCHIVE))[:1]:
        batches = {Path(name).name: batch for name, batch in members(archive).items()}
    absent = [name for wanted in BATCHES.values() for name in wanted if name not in batches]
    if not absent:
        return batches
    pickled = [file for name in PICKLED for file in sorted(root.rglob(name))]
    if pickled and not batches:
        raise reading.fault(
            f"{pickled[0]} is the Python version, which is pickled. Opening it could run any code, so it is "
            "refused"
        )
    raise reading.lacks(root, f"neither Parquet files nor all batches: {', '.join(absent)} absent")


def _records(batches: list[Batch]) -> Iterator[DatasetRow]:
    for batch in batches:
        content = _content(batch)
        path = batch.path if isinstance(batch, FileImage) else batch.archive / batch.member
        if not content or len(content) % RECORD:
            raise DataError(
                f"{path} has {len(content)} bytes, not a multiple of {RECORD} (1 label and {PIXELS} "
                "pixel bytes). It is not a batch of the binary version, or cut off: download it again."
            )
        for index in range(len(content) // RECORD):
            values = {"label": content[index * RECORD], "image": PixelRecord(batch, index)}
            yield DatasetRow(path, f"record {index}", values)


@lru_cache(maxsize=1)
def _content(batch: Batch) -> bytes:
    return batch.read()


def _png(planes: bytes) -> bytes:
    """The three colour planes of one image as a PNG file whose pixels are stored, not compressed."""
    rows = np.frombuffer(planes, np.uint8).reshape(3, SIDE, SIDE).transpose(1, 2, 0).reshape(SIDE, 3 * SIDE)
    unfiltered = np.pad(rows, ((0, 0), (1, 0))).tobytes()  # each row begins with the number of its filter, 0
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(unfiltered, 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


CARD = DatasetCard(
    name="cifar-10",
    title="CIFAR-10",
    load=load_cifar10,
    licence="unknown (none is stated by the authors or on the Hub)",
    citation="A. Krizhevsky. Learning multiple layers of features from tiny images. Technical report, 2009.",
    prompt="classification-closed",
    pools={"train": MOST_ROWS, "test": 10_000},
    paper=(10_000, 5_000),
    hub=(HubFiles("uoft-cs/cifar10", ("plain_text/*.parquet",), "0b2714987fa478483af9968de7c934580d0bb9a2"),),
    raw=(
        f"Put {ARCHIVE} of https://www.cs.toronto.edu/~kriz/cifar.html into the folder, packed or unpacked, "
        "or the folder plain_text of https://huggingface.co/datasets/uoft-cs/cifar10 (Parquet files)."
    ),
    classes=names(CIFAR_10),
    image_size=(SIDE, SIDE),
    question_tokens=45,
    answer_tokens=3,
    departures=Departure.of("cifar-10"),
)
