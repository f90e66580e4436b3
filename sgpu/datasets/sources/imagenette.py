"""Imagenette: ten easily told classes of ImageNet (Howard, 2019).

Read from the archives or folders of the authors, or from the Parquet files that the Hub made of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, ImageReference, LoadRequest, Source
from sgpu.datasets.fields import RowError, quote
from sgpu.datasets.image_files import FileImage, members
from sgpu.datasets.source_rows import DatasetRow, SourceOptions, SourceReading, files_of_split, folder_named
from sgpu.datasets.sources.class_images import IMAGENETTE, class_source, labelled_rows, names

POOLS = {"train": "train", "val": "test"}  # by the folder of the authors' layout
HUB_SPLITS = {"train": "train", "test": "validation"}
ARCHIVES = {"full_size": "imagenette2", "320px": "imagenette2-320", "160px": "imagenette2-160"}
IMAGE_SUFFIXES = (".jpeg", ".jpg", ".png")
CLASSES = tuple(IMAGENETTE.values())


class ImagenetteOptions(SourceOptions):
    """``broad`` accepts wider terms too: fish for a tench, dog for an English springer."""

    size: Literal["full_size", "320px", "160px"] = "320px"
    broad: bool = False


def load_imagenette(request: LoadRequest) -> Source:
    """Load both pools, a class being the stratum. Raises DataError, UsageError."""
    reading = SourceReading(CARD, request)
    options = reading.options(ImagenetteOptions)
    hub = _hub_folder(reading.root, options.size)
    if hub is None or not files_of_split(hub, *HUB_SPLITS.values()):
        rows = _raw_rows(reading.root, _files(reading, options.size))
        return class_source(reading, CLASSES, rows, named=True, broad=options.broad)
    files = {pool: reading.parquet_files(hub, split) for pool, split in HUB_SPLITS.items()}
    rows = {pool: list(labelled_rows(files[pool], "image", CLASSES)) for pool in files}
    counts = Counter(row.values["image_name"] for pool in rows.values() for row in pool)
    named = None not in counts and max(counts.values(), default=1) == 1
    note = "The Parquet files carry no usable image names: ids are row numbers, not those of the archive."
    notes = [] if named else [note]
    return class_source(reading, CLASSES, rows, notes, named=named, broad=options.broad)


def _hub_folder(root: Path, size: str) -> Path | None:
    """Return the folder of one size, or the root if no folder says that it is of another size."""
    sizes = [other for other in ARCHIVES if other != size]
    if (folder := folder_named(root, size)) != root:
        return folder
    return None if root.name in sizes or any(folder_named(root, o) != root for o in sizes) else root


def _files(reading: SourceReading, size: str) -> Mapping[str, ImageReference]:
    """Return every file of the folder or archive of one size, by its name there."""
    root, name = reading.root, ARCHIVES[size]
    of_another_size = root.name in ARCHIVES.values() and root.name != name
    candidates = [*sorted(root.rglob(name)), *([] if of_another_size else [root])]
    for folder in candidates:
        if all((folder / part).is_dir() for part in POOLS):
            files = [file for part in POOLS for file in sorted((folder / part).rglob("*"))]
            return {file.relative_to(folder).as_posix(): FileImage(file) for file in files}
    for suffix in (".tgz", ".tar.gz", ".tar"):
        for archive in sorted(root.rglob(name + suffix)):
            return members(archive)
    wanted = f"neither {name}.tgz, nor the folders train/ and val/, nor Parquet files of {size}"
    raise reading.lacks(root, wanted)


def _raw_rows(root: Path, files: Mapping[str, ImageReference]) -> dict[str, list[DatasetRow]]:
    """Return the images below train/ and val/ by pool; the folder of each names its class."""
    rows: dict[str, list[DatasetRow]] = {pool: [] for pool in POOLS.values()}
    labels = {wnid: label for label, wnid in enumerate(IMAGENETTE)}
    for name, image in files.items():
        parts = PurePosixPath(name).parts
        start = next((index for index, part in enumerate(parts) if part in POOLS), None)
        if start is None or not parts[-1].lower().endswith(IMAGE_SUFFIXES) or parts[-1].startswith("."):
            continue
        wnid = PurePosixPath(*parts[start + 1 : -1]).as_posix()
        fault = RowError(
            f"the folder {quote(wnid)} is none of the {len(IMAGENETTE)} classes",
            f"Keep images in folders named {', '.join(IMAGENETTE)}.",
        )
        values = {"label": labels.get(wnid), "image": image, "image_name": parts[-1]}
        row = DatasetRow(root, "/".join(parts[start:]), values, fault=None if wnid in labels else fault)
        rows[POOLS[parts[start]]].append(row)
    return rows


CARD = DatasetCard(
    name="imagenette",
    title="Imagenette",
    load=load_imagenette,
    licence="Apache-2.0 (data set card); images: terms of ImageNet, research only",
    citation="J. Howard. Imagenette. https://github.com/fastai/imagenette, 2019.",
    prompt="classification-closed",
    pools={"train": 9_469, "test": 3_925},
    paper=(10_000, 5_000),
    # A commit of refs/convert/parquet, which a bot of the Hub writes.
    hub=(HubFiles("frgfm/imagenette", ("320px/*/*.parquet",), "823b9fdada70ebfa6486d411b6d9f2cb96cb9117"),),
    raw=(
        "Put imagenette2-320.tgz of https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-320.tgz into the "
        "folder, packed or unpacked (imagenette2.tgz for `size: full_size`, imagenette2-160.tgz for 160px), "
        "or the folder 320px of https://huggingface.co/datasets/frgfm/imagenette/tree/refs%2Fconvert%2Fparquet."
    ),
    classes=names(CLASSES),
    image_size=(427, 320),
    question_tokens=60,
    answer_tokens=5,
    departures=Departure.of("imagenette"),
)
