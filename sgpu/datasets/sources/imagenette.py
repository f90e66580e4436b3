"""Imagenette: ten easily told classes of ImageNet (Howard, 2019).

Read from the archives or folders of the authors, or from the Parquet files that the Hub made of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, ImageReference, LoadRequest, Question, Source
from sgpu.datasets.fields import RowError, number_of, quote
from sgpu.datasets.image_files import FileImage, members
from sgpu.datasets.source_rows import DatasetRow, SourceOptions, SourceReading, files_of_split, folder_named
from sgpu.datasets.sources.class_images import (
    IMAGENETTE,
    class_question,
    image_names,
    labelled_rows,
    names,
)

FOLDERS = {"train": "train", "test": "val"}
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
    root = reading.root
    hub = _hub_folder(root, options.size)
    if hub and files_of_split(hub, *HUB_SPLITS.values()):
        return _from_hub(hub, options, reading)
    return reading.source(_raw_pools(root, options, reading))


def _hub_folder(root: Path, size: str) -> Path | None:
    """The folder of one size; the root where no folder says that it is of another size."""
    sizes = [other for other in ARCHIVES if other != size]
    if (folder := folder_named(root, size)) != root:
        return folder
    return None if root.name in sizes or any(folder_named(root, o) != root for o in sizes) else root


def _from_hub(hub: Path, options: ImagenetteOptions, reading: SourceReading) -> Source:
    files = {pool: reading.parquet_files(hub, split) for pool, split in HUB_SPLITS.items()}
    rows = {pool: list(labelled_rows(files[pool], "image", CLASSES)) for pool in files}
    carried = {pool: image_names(files[pool], "image") for pool in files}
    counts = Counter(name for pool in carried.values() for name in pool)
    named = None not in counts and max(counts.values(), default=1) == 1

    def question_of(pool: str, number: int, row: DatasetRow) -> Question:
        item = CLASSES[number_of(row.values, "label", below=len(CLASSES))]
        question_id = str(carried[pool][number]) if named else f"{pool}:{number}"
        return class_question(question_id, item, row.values["image"], options.broad)

    pools = {pool: reading.pool(pool, rows[pool], partial(question_of, pool)) for pool in rows}
    note = "The Parquet files carry no usable image names: ids are row numbers, not those of the archive."
    return reading.source(pools, [] if named else [note])


def _raw_pools(root: Path, options: ImagenetteOptions, reading: SourceReading) -> dict[str, list[Question]]:
    images = _images(reading, root, options.size)

    def rows(pool: str) -> Iterator[DatasetRow]:
        for name, image in images.items():
            folder, _, file = name.partition("/")
            if folder == FOLDERS[pool]:
                yield DatasetRow(root, name, {"class": PurePosixPath(file).parent.as_posix(), "image": image})

    def question_of(_: int, row: DatasetRow) -> Question:
        item = IMAGENETTE.get(row.values["class"])
        if item is None:
            raise RowError(
                f"the folder {quote(row.values['class'])} is none of the {len(IMAGENETTE)} classes",
                f"Keep images in folders named {', '.join(IMAGENETTE)}.",
            )
        return class_question(PurePosixPath(row.position).name, item, row.values["image"], options.broad)

    return {pool: reading.pool(pool, rows(pool), question_of) for pool in FOLDERS}


def _images(reading: SourceReading, root: Path, size: str) -> Mapping[str, ImageReference]:
    """Every image by its name from ``train/`` or ``val/`` on, of the folder or archive of one size."""
    name = ARCHIVES[size]
    of_another_size = root.name in ARCHIVES.values() and root.name != name
    candidates = [*sorted(root.rglob(name)), *([] if of_another_size else [root])]
    folder = next((f for f in candidates if all((f / part).is_dir() for part in FOLDERS.values())), None)
    if folder is not None:
        files = (file for part in FOLDERS.values() for file in sorted((folder / part).rglob("*")))
        return {
            file.relative_to(folder).as_posix(): FileImage(file) for file in files if _is_image(file.name)
        }
    archive = next(
        (file for suffix in (".tgz", ".tar.gz", ".tar") for file in sorted(root.rglob(name + suffix))), None
    )
    if archive is None:
        wanted = f"neither {name}.tgz, nor the folders train/ and val/, nor Parquet files of {size}"
        raise reading.lacks(root, wanted)
    images: dict[str, ImageReference] = {}
    for member, image in members(archive).items():
        parts = PurePosixPath(member).parts
        start = next((i for i, part in enumerate(parts) if part in FOLDERS.values()), None)
        if start is not None and _is_image(member):
            images["/".join(parts[start:])] = image
    return images


def _is_image(name: str) -> bool:
    base = PurePosixPath(name).name
    return base.lower().endswith(IMAGE_SUFFIXES) and not base.startswith(".")


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
