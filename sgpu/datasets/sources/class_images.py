"""Images of CIFAR-10 and Imagenette: the names of their classes, and how labelled images become questions.

Aliases are other names of the same thing (spelling, British use, the synonyms that WordNet gives for the
class). Broader terms, true of the object but also of much else, count only where a data set's option says so.
Of files as the Hub has them the labels are read, the images only named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sgpu.datasets.base import Question, Source
from sgpu.datasets.fields import RowError, number_of
from sgpu.datasets.source_rows import DatasetRow, SourceReading, parquet_schema, parquet_source_rows
from sgpu.errors import DataError
from sgpu.words import words

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
    """Return the names alone, in order."""
    return tuple(item.name for item in classes)


def class_source(
    reading: SourceReading,
    classes: Sequence[ClassName],
    rows: Mapping[str, Iterable[DatasetRow]],
    notes: Iterable[str] = (),
    *,
    named: bool = False,
    broad: bool = False,
) -> Source:
    """Return the source of labelled images, by pool, with the class as stratum.

    A row has ``label``, ``image`` and, with ``named``, ``image_name``, which is then its id; otherwise ids
    are pool and row number. ``broad``: see `ClassName.references`.
    """

    def question_of(pool: str, number: int, row: DatasetRow) -> Question:
        item = classes[number_of(row.values, "label", below=len(classes))]
        question_id = str(row.values["image_name"]) if named else f"{pool}:{number}"
        return Question(
            question_id,
            QUESTION,
            item.references(broad),
            group=question_id,
            meta={"class": item.name},
            all_answers=(item.name,),
            image=row.values["image"],
            stratum=item.name,
        )

    pools = {pool: reading.pool(pool, rows[pool], partial(question_of, pool)) for pool in rows}
    return reading.source(pools, notes)


def labelled_rows(files: Iterable[Path], column: str, classes: Sequence[ClassName]) -> Iterator[DatasetRow]:
    """Yield the rows of Parquet files whose images are in ``column``, as `class_source` needs them.

    A row whose image holds nothing has a fault. Raises DataError for absent columns, and if a file says that
    its labels mean other classes.
    """
    for file in files:
        _check_class_labels(file, classes)
        for row in parquet_source_rows([file], ["label"], image=column):
            image = row.values[column]
            fault = None if image else RowError(f"{column} holds no image bytes", "Fetch the file again.")
            yield row._replace(values={**row.values, "image": image}, fault=fault)


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
