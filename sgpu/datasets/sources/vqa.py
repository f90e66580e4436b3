"""What data sets share whose questions ten annotators answered: their files, and answers to references.

The normalisation of answers follows the evaluation of the VQA challenge (Antol et al., ICCV 2015): an answer
that three annotators gave counts as fully right there, hence the default support.

Files: a folder as its user downloaded it, and the pairs of question and annotation files that VQA v2
introduced. Names are looked for at any depth below the folder. Archives are read in place.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import Field

from sgpu.datasets.base import ImageReference, Question
from sgpu.datasets.fields import RowError, check_text, id_of, list_of, quote, require_text
from sgpu.datasets.image_files import TAR_SUFFIXES, FileImage, members
from sgpu.datasets.source_rows import DatasetRow, SourceOptions, SourceReading, parquet_source_rows
from sgpu.errors import DataError

ANNOTATORS = 10
COLUMNS = ("question_id", "question", "answers")
UNANSWERABLE = frozenset({"unanswerable", "unsuitable", "unsuitable image"})
YES_NO = frozenset({"yes", "no"})
AS_PUBLISHED = "Take the file as its authors publish it."

_ARTICLES = frozenset({"a", "an", "the"})
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten"
# Left out are forms that are another word without their apostrophe ("we'll", "it's", "I'd").
_CONTRACTED = """
ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mightn't mustn't needn't
shouldn't wasn't weren't won't wouldn't could've might've must've should've would've i'm i've we've you've
they've you'd they'd you'll they'll you're they're he's she's that's there's here's what's where's who's
when's how's why's somebody's someone's something's y'all o'clock ma'am
"""
_NUMBERS = {word: str(value) for value, word in enumerate(_NUMBER_WORDS.split())} | {"none": "0"}
_CONTRACTIONS = {form.replace("'", ""): form for form in _CONTRACTED.split()}
_DIGIT_COMMA = re.compile(r"(?<=\d),(?=\d)")
_LONE_PERIOD = re.compile(r"\.(?!\d)")
_PUNCTUATION = re.compile(r"""[;/\[\]"{}()=+\\_\-><@`,?!]""")
ARCHIVES = (".zip", *TAR_SUFFIXES)
IMAGES = (".jpg", ".jpeg", ".png")
Images = dict[str, ImageReference]


class AnnotatorOptions(SourceOptions):
    """``refs``: answers with ``min_support`` annotators, the consensus alone, or all of them."""

    refs: Literal["support", "consensus", "all"] = "support"
    min_support: int = Field(default=3, ge=1, le=ANNOTATORS)


def normalised(answer: str) -> str:
    """The form in which answers are compared; the answer in lower case if nothing else would be left."""
    plain = " ".join(answer.lower().replace("’", "'").split())
    text = _LONE_PERIOD.sub("", _PUNCTUATION.sub(" ", _DIGIT_COMMA.sub("", plain)))
    words = (_CONTRACTIONS.get(word, _NUMBERS.get(word, word)) for word in text.split())
    return " ".join(word for word in words if word not in _ARTICLES) or plain


def support(answers: Iterable[str]) -> dict[str, int]:
    """How many annotators gave each normalised answer, most first, ties by text; blanks are no answer."""
    counts = Counter(normalised(answer) for answer in answers if answer.strip())
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def references(answers: Sequence[str], options: AnnotatorOptions) -> tuple[str, ...]:
    """The references by ``options``, best supported first; the first of all where none has the support.

    Each stands in the spelling that most annotators used, since a judge reads it.
    """
    counts = support(answers)
    spellings: dict[str, Counter[str]] = {key: Counter() for key in counts}
    for answer in filter(str.strip, answers):
        spellings[normalised(answer)][answer.strip()] += 1
    least = {"support": options.min_support, "consensus": ANNOTATORS + 1, "all": 1}[options.refs]
    chosen = [key for key, count in counts.items() if count >= least] or list(counts)[:1]
    return tuple(min(spellings[key], key=lambda text: (-spellings[key][text], text)) for key in chosen)


def annotated(
    reading: SourceReading, rows: Iterable[DatasetRow], options: AnnotatorOptions
) -> list[Question]:
    """Return the questions of rows that annotators answered.

    A row has question_id, question, answers (strings, or mappings with a ``raw_answer`` or else an
    ``answer``), image_name, image (None where that cannot be found), and where wanted meta and group (None:
    the question is a group of its own).
    """
    return reading.questions(rows, lambda _, row: _question(row.values, options))


def _question(values: Mapping[str, Any], options: AnnotatorOptions) -> Question:
    question_id, text = id_of(values, "question_id"), require_text(values, "question")
    answers, image = _answer_texts(values["answers"]), values["image"]
    if image is None:
        name = values["image_name"]
        raise RowError(f"image {name} is absent", "Download the images again, or add this one.")
    counts = support(answers)
    consensus = next(iter(counts))
    meta = {
        **{key: value for key, value in values.get("meta", {}).items() if value is not None},
        "answer_counts": counts,
        "yes_no": consensus in YES_NO,
        "unanswerable": consensus in UNANSWERABLE,
        "n_unanswerable": sum(counts.get(answer, 0) for answer in UNANSWERABLE),
    }
    group = question_id if values.get("group") is None else values["group"]
    return Question(question_id, text.strip(), references(answers, options), group, meta, answers, image)


def _answer_texts(value: Any) -> tuple[str, ...]:
    """Return the annotators' answers as they are; a blank one is an annotator who gave none.

    ``raw_answer`` is what an annotator of OK-VQA wrote ("racing"), ``answer`` its stem there ("race").
    """
    if value is None or value == []:
        raise RowError("there are no answers", "Give the answers of the annotators, or leave the row out.")
    texts: list[str] = []
    for index, entry in enumerate(list_of(value, "answers")):
        name, text = f"answer {index}", entry
        if isinstance(entry, Mapping):
            text = entry.get("raw_answer") or entry.get("answer")
        texts.append(text if isinstance(text, str) and not text.strip() else check_text(text, name))
    if not any(map(str.strip, texts)):
        raise RowError("all answers are blank", "Give at least one answer, or leave the row out.")
    return tuple(texts)


def read_image_rows(
    reading: SourceReading, files: list[Path], optional: Collection[str], expected: int
) -> list[DatasetRow]:
    """Return the ``expected`` rows of Parquet files, with their images and the columns of ``optional``."""
    rows = list(parquet_source_rows(files, COLUMNS, optional, image="image"))
    reading.expect_rows(f"the split of {files[0]}", len(rows), expected)
    return [row._replace(values={**row.values, "image_name": f"of {row.position}"}) for row in rows]


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
            raise DataError(f"{self} holds {where}. {AS_PUBLISHED}")
        return content

    def rows(self, id: str, key: str | None = None) -> list[DatasetRow]:
        """Return the `entries` as rows that are named by their ``id``. One without an id has a fault."""
        return [self._row(id, index, entry) for index, entry in enumerate(self.entries(key))]

    def _row(self, id: str, index: int, entry: Any) -> DatasetRow:
        try:
            if not isinstance(entry, Mapping):
                raise RowError(f"it is {quote(entry)}, not a mapping", AS_PUBLISHED)
            return DatasetRow(Path(str(self)), f"{id} {id_of(entry, id)}", entry)
        except RowError as fault:
            return DatasetRow(Path(str(self)), f"entry {index}", {}, fault=fault)


class Folder:
    """The files below ``root`` by name; of several with one name the least deep counts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        paths_of: dict[str, list[Path]] = defaultdict(list)
        walked: set[str] = set()
        for parent, folders, names in os.walk(root, followlinks=True):
            # Image folders are often links; a link to a folder above must not be walked for ever.
            if (real := os.path.realpath(parent)) in walked:
                folders.clear()
                continue
            walked.add(real)
            for name in names:
                paths_of[name].append(Path(parent, name))
        self.files = {
            name: min(paths, key=lambda path: (len(path.parts), path.as_posix()))
            for name, paths in sorted(paths_of.items())
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

    def json_of(self, *words: str) -> JsonFile | None:
        """Return the JSON file with all of ``words`` in its name. Raises DataError for several."""
        names = {name.removesuffix(".zip") for name in self.files if name.endswith((".json", ".json.zip"))}
        fitting = [name for name in sorted(names) if {*words} <= set(re.split("[^a-z]+", name.lower()))]
        if len(fitting) > 1:
            raise DataError(
                f"{self.root} has several files of {' '.join(words)}: {', '.join(fitting)}. Leave one."
            )
        return self.json(fitting[0]) if fitting else None

    def require_json(self, reading: SourceReading, *names: str) -> list[JsonFile]:
        """Return the files of these names. Raises DataError that names the first one that is absent."""
        files = {name: self.json(name) for name in names}
        for name, file in files.items():
            if file is None:
                raise reading.lacks(self.root, f"no {name}")
        return [file for file in files.values() if file]

    def images(self, *archives: str) -> Images:
        """Images by file name: members of ``archives`` (names without suffix; none: any), and loose files.

        Raises DataError if there is not one, or an archive cannot be read.
        """
        files: Images = {}
        for name, path in self.files.items():
            suffix = next((suffix for suffix in ARCHIVES if name.endswith(suffix)), None)
            if suffix is None or name.endswith(".json.zip"):
                continue
            if archives and name.removesuffix(suffix) not in archives:
                continue
            for member, image in members(path).items():
                if member.lower().endswith(IMAGES):
                    files.setdefault(PurePosixPath(member).name, image)
        files |= {name: FileImage(path) for name, path in self.files.items() if name.lower().endswith(IMAGES)}
        if not files:
            archive = " or ".join(f"{stem}.zip" for stem in archives) or "an archive"
            raise DataError(
                f"{self.root} has no images. Put {archive} there, or the folder that it unpacks to."
            )
        return files


def read_pair(
    reading: SourceReading, pool: str, pair: Iterable[JsonFile], images: Images
) -> Iterator[DatasetRow]:
    """Yield the questions of one file with their annotations from another; one without the other has a fault.

    Raises DataError if a file is not JSON or lacks its list, or for another number of questions than the
    card says.
    """
    questions, annotations = pair
    asked = questions.rows("question_id", "questions")
    reading.expect_rows(str(questions), len(asked), reading.card.pools.get(pool, len(asked)))
    answered: dict[str, DatasetRow] = {}
    twice = RowError("the question is annotated a second time", "Leave one annotation.")
    for row in annotations.rows("question_id", "annotations"):
        if row.fault is None and answered.setdefault(row.position, row) is not row:
            row = row._replace(fault=twice)
        if row.fault is not None:
            yield row
    for row in asked:
        if row.fault is None:
            try:
                row = row._replace(values=_values(row, answered.get(row.position), annotations, images))
            except RowError as fault:
                row = row._replace(fault=fault)
        yield row
    positions = {row.position for row in asked}
    stray = RowError(f"it answers a question that is not in {questions}", "Add the question there.")
    yield from (row._replace(fault=stray) for row in answered.values() if row.position not in positions)


def _values(row: DatasetRow, annotation: DatasetRow | None, file: JsonFile, images: Images) -> dict[str, Any]:
    if annotation is None:
        raise RowError(f"it has no annotation in {file}", "Add it there.")
    image_id = id_of({**annotation.values, **row.values}, "image_id")
    names = coco_names(image_id)
    return {
        "question_id": row.values["question_id"],
        "question": row.values.get("question"),
        "answers": annotation.values.get("answers"),
        "image_name": " or ".join(names),
        "image": next((images[name] for name in names if name in images), None),
        "group": image_id,
        "meta": {"image_id": image_id, "answer_type": annotation.values.get("answer_type")},
    }


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
