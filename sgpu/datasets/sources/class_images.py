"""Images of CIFAR-10 and Imagenette: the names of their classes, and labelled images in Parquet files.

Aliases are other names of the same thing (spelling, British use, the synonyms that WordNet gives for the
class). Broader terms, true of the object but also of much else, count only where a data set's option says so.
Of files as the Hub has them the labels are read, the images only named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sgpu.datasets.base import ImageReference, Question
from sgpu.datasets.fields import RowError
from sgpu.datasets.source_rows import DatasetRow, parquet_schema, parquet_source_rows
from sgpu.errors import DataError
from sgpu.judges.alias import words
from sgpu.storage.parquet_files import opened, row_count

QUESTION = "What is the main object in this image?"


@dataclass(frozen=True)
class ClassName:
    """A class: ``name`` is what the data set calls it, and the first reference."""

    name: str
    aliases: tuple[str, ...] = ()
    broader: tuple[str, ...] = ()

    def references(self, broad: bool = False) -> tuple[str, ...]:
        """What a judge accepts."""
        return (self.name, *self.aliases, *(self.broader if broad else ()))


# In the order of the labels 0 to 9.
CIFAR_10 = (
    ClassName("airplane", ("plane", "aeroplane", "aircraft", "airliner", "jet")),
    ClassName("automobile", ("car", "motorcar", "motor car", "auto")),
    ClassName("bird"),
    ClassName("cat", ("kitten",)),
    ClassName("deer"),
    ClassName("dog", ("puppy",)),
    ClassName("frog"),
    ClassName("horse", ("pony", "foal")),
    ClassName("ship", ("boat", "vessel")),
    ClassName("truck", ("lorry",)),
)

# By the WordNet id that names the folder of a class, in the order of the labels 0 to 9.
IMAGENETTE = {
    "n01440764": ClassName("tench", ("Tinca tinca",), ("fish",)),
    "n02102040": ClassName(
        "English springer", ("English springer spaniel", "springer spaniel", "springer"), ("spaniel", "dog")
    ),
    "n02979186": ClassName(
        "cassette player",
        ("cassette deck", "tape player", "tape deck", "cassette tape player", "cassette recorder"),
        ("stereo", "audio player"),
    ),
    "n03000684": ClassName("chain saw", ("chainsaw",), ("saw",)),
    "n03028079": ClassName("church", ("church building",), ("chapel", "cathedral", "building")),
    "n03394916": ClassName("French horn", ("horn",), ("brass instrument",)),
    "n03417042": ClassName(
        "garbage truck",
        ("dustcart", "bin lorry", "refuse truck", "rubbish truck", "trash truck", "waste collection truck"),
        ("truck", "lorry"),
    ),
    "n03425413": ClassName(
        "gas pump",
        ("gasoline pump", "petrol pump", "fuel pump", "fuel dispenser", "island dispenser"),
        ("pump",),
    ),
    "n03445777": ClassName("golf ball", ("golfball",), ("ball",)),
    "n03888257": ClassName("parachute", ("chute",)),
}


def names(classes: Iterable[ClassName]) -> tuple[str, ...]:
    """The names alone, in order."""
    return tuple(item.name for item in classes)


def class_question(question_id: str, item: ClassName, image: ImageReference, broad: bool = False) -> Question:
    """The question for the object in an image of one class, which is also its stratum."""
    return Question(
        question_id,
        QUESTION,
        item.references(broad),
        group=question_id,
        meta={"class": item.name},
        all_answers=(item.name,),
        image=image,
        stratum=item.name,
    )


def labelled_rows(files: Sequence[Path], column: str, classes: Sequence[ClassName]) -> Iterator[DatasetRow]:
    """Rows with their ``label`` and, in ``column``, where their image lies; a fault where it holds nothing.

    Raises DataError for absent columns, and if a file says that its labels mean other classes.
    """
    for file in files:
        _check_class_labels(file, classes)
        for row in parquet_source_rows([file], ["label"], unread=[column], image=column):
            absent = RowError(f"{column} holds no image bytes", "Fetch the file again.")
            yield row if row.values[column] else row._replace(fault=absent)


def image_names(files: Sequence[Path], column: str) -> list[str | None]:
    """The file names that the image cells carry, row by row; None where a cell has none."""
    file_names: list[str | None] = []
    for file in files:
        kind = parquet_schema(file).field(column).type
        if not pa.types.is_struct(kind) or "path" not in [field.name for field in kind]:
            file_names.extend([None] * row_count(file))
            continue
        cells = opened(file).read(columns=[f"{column}.path"])[column].to_pylist()
        file_names.extend(
            Path(path).name if path else None for path in ((cell or {}).get("path") for cell in cells)
        )
    return file_names


def _check_class_labels(file: Path, classes: Sequence[ClassName]) -> None:
    declared = _declared_names(file)
    same = len(declared) == len(classes) and all(
        words(name) in {words(alias) for alias in item.references()}
        for name, item in zip(declared, classes, strict=False)
    )
    if declared and not same:
        raise DataError(
            f"{file}: its labels are {', '.join(declared)}; expected {', '.join(names(classes))}, in this "
            "order. The source has changed: fetch the revision that the card names."
        )


def _declared_names(file: Path) -> list[str]:
    """The class names that Hub files carry beside their schema; none if the file does not say."""
    metadata = parquet_schema(file).metadata or {}
    try:
        declared: Any = json.loads(metadata[b"huggingface"])["info"]["features"]["label"]["names"]
    except (KeyError, TypeError, ValueError):
        return []
    return [str(name) for name in declared] if isinstance(declared, list) else []
