"""A folder as its user downloaded it, and the pairs of question and annotation files that VQA v2 introduced.

Names are looked for at any depth below the folder. Archives are read in place.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sgpu.datasets.base import ImageReference, RejectedRow
from sgpu.datasets.image_files import TAR_SUFFIXES, FileImage, members
from sgpu.datasets.response_rows import RowError
from sgpu.datasets.source_rows import shown
from sgpu.datasets.sources.annotators import AnnotatedRow, id_of
from sgpu.errors import DataError

ARCHIVES = (".zip", *TAR_SUFFIXES)
IMAGES = (".jpg", ".jpeg", ".png")
Images = dict[str, ImageReference]


@dataclass(frozen=True)
class JsonFile:
    """A JSON file of its own, or the member of an archive."""

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}/{self.member}"

    def read(self) -> Any:
        """The parsed content. Raises DataError if it cannot be read or is not JSON."""
        try:
            data = self.path.read_bytes() if self.member is None else members(self.path)[self.member].read()
            return json.loads(data)
        except OSError as error:
            raise DataError(f"cannot read {self}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self} is not JSON: {error}. Download it again.") from None

    def entries(self, key: str | None = None) -> list[Any]:
        """The list under ``key``, or the content itself. Raises DataError if there is no list."""
        content = self.read()
        if key is not None:
            content = content.get(key) if isinstance(content, dict) else None
        if not isinstance(content, list):
            where = f"no list under {key!r}" if key else "no list"
            raise DataError(f"{self} holds {where}. Take the file as its authors publish it.")
        return content


class Folder:
    """The files below ``root`` by name; of several with one name the least deep counts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        found: dict[str, list[Path]] = defaultdict(list)
        walked: set[str] = set()
        for place, folders, names in os.walk(root, followlinks=True):
            # Image folders are often links; a link to a folder above must not be walked for ever.
            if (real := os.path.realpath(place)) in walked:
                folders.clear()
                continue
            walked.add(real)
            for name in names:
                found[name].append(Path(place, name))
        self.files = {
            name: min(paths, key=lambda path: (len(path.parts), path.as_posix()))
            for name, paths in sorted(found.items())
        }

    def json(self, name: str, *archives: str) -> JsonFile | None:
        """``name`` as a file, inside ``name``.zip, or inside one of ``archives``."""
        if name in self.files:
            return JsonFile(self.files[name])
        for archive in (f"{name}.zip", *archives):
            if archive in self.files:
                for member in members(self.files[archive]):
                    if PurePosixPath(member).name == name:
                        return JsonFile(self.files[archive], member)
        return None

    def images(self, *archives: str) -> Images:
        """Images by file name: members of ``archives`` (names without suffix; none: any), and loose files.

        Raises DataError if there is not one, or an archive cannot be read.
        """
        found: Images = {}
        for name, path in self.files.items():
            suffix = next((suffix for suffix in ARCHIVES if name.endswith(suffix)), None)
            if suffix is None or name.endswith(".json.zip"):
                continue
            if archives and name.removesuffix(suffix) not in archives:
                continue
            for member, image in members(path).items():
                if member.lower().endswith(IMAGES):
                    found.setdefault(PurePosixPath(member).name, image)
        found |= {name: FileImage(path) for name, path in self.files.items() if name.lower().endswith(IMAGES)}
        if not found:
            archive = " or ".join(f"{stem}.zip" for stem in archives) or "an archive"
            raise DataError(
                f"{self.root} has no images. Put {archive} there, or the folder that it unpacks to."
            )
        return found


@dataclass(frozen=True)
class Pair:
    """The entries of a file of questions and of the file of annotations that answers them."""

    pool: str
    files: tuple[JsonFile, JsonFile]
    questions: list[Any]
    annotations: list[Any]

    @classmethod
    def read(cls, pool: str, questions: JsonFile, annotations: JsonFile) -> Pair:
        """Raises DataError if one is not JSON or lacks its list."""
        entries = questions.entries("questions"), annotations.entries("annotations")
        return cls(pool, (questions, annotations), *entries)

    def rows(
        self, image_names: Callable[[str], list[str]], images: Images
    ) -> Iterator[AnnotatedRow | RejectedRow]:
        """Questions with their annotations; one without the other is rejected.

        ``image_names`` gives the file names that an image id may stand for.
        """
        annotations: dict[str, Mapping[str, Any]] = {}
        for index, entry in enumerate(self.annotations):
            try:
                key = _id_of(entry)
                if key in annotations:
                    raise RowError(f"question {key} is annotated a second time", "Leave one annotation.")
                annotations[key] = entry
            except RowError as error:
                yield RejectedRow(str(self.files[1]), f"entry {index}", error.reason, error.remedy)
        unasked = dict.fromkeys(annotations)
        for index, entry in enumerate(self.questions):
            try:
                key = _id_of(entry)
                unasked.pop(key, None)
                if key not in annotations:
                    raise RowError(f"question {key} has no annotation in {self.files[1]}", "Add it there.")
                yield self._row(entry, annotations[key], image_names, images)
            except RowError as error:
                yield RejectedRow(str(self.files[0]), f"entry {index}", error.reason, error.remedy)
        for key in unasked:
            reason = f"it answers a question that is not in {self.files[0]}"
            yield RejectedRow(str(self.files[1]), f"question_id {key}", reason, "Add the question there.")

    def _row(
        self,
        entry: Mapping[str, Any],
        annotation: Mapping[str, Any],
        image_names: Callable[[str], list[str]],
        images: Images,
    ) -> AnnotatedRow:
        image_id = id_of({**annotation, **entry}, "image_id")
        names, answer_type = image_names(image_id), annotation.get("answer_type")
        return AnnotatedRow(
            pool=self.pool,
            file=str(self.files[0]),
            row=f"question_id {entry['question_id']}",
            question_id=entry["question_id"],
            text=entry.get("question"),
            answers=annotation.get("answers"),
            image_name=" or ".join(names),
            image=next((images[name] for name in names if name in images), None),
            group=image_id,
            meta={"image_id": image_id, "answer_type": answer_type},
        )


def coco_names(image_id: str) -> list[str]:
    """File names of a COCO image, of 2017 and of 2014; for an id that is no number, the id as a name."""
    if not image_id.isascii() or not image_id.isdigit():
        name = PurePosixPath(image_id).name
        return [name, *(name + suffix for suffix in IMAGES)]
    number = f"{int(image_id):012d}.jpg"
    return [
        number,
        f"COCO_val2014_{number}",
        f"COCO_train2014_{number}",
        *(image_id + suffix for suffix in IMAGES),
    ]


def _id_of(entry: Any) -> str:
    if not isinstance(entry, Mapping):
        raise RowError(f"it is {shown(entry)}, not a mapping", "Take the file as its authors publish it.")
    return id_of(entry, "question_id")
