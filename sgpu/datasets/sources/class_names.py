"""Names of the classes of CIFAR-10 and Imagenette, with what else counts as naming them.

Aliases are other names of the same thing (spelling, British use, the synonyms that WordNet gives for the
class). Broader terms, true of the object but also of much else, count only where a data set's option says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sgpu.datasets.base import ImageReference, Question

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
