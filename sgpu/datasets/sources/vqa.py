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
    """The questions of rows that annotators answered. A row that is malformed or repeats an id is rejected.

    Of two with one id, in whatever pool, the first stays. A row has question_id, question, answers (strings,
    or mappings with a ``raw_answer`` or else an ``answer``), image_name, image (None where that cannot be
    found), and where wanted meta and group (None: the question is a group of its own).
    """

    def question_of(_: int, row: DatasetRow) -> Question:
        question = _question(row.values, options)
        earlier = reading.rows.setdefault(question.question_id, row)
        if earlier is not row:
            used = (
                f"the id {quote(question.question_id)} is already that of {earlier.file}, {earlier.position}"
            )
            raise RowError(used, "Give each question its own id.")
        return question

    return reading.questions(rows, question_of, unique_ids=False)[0]


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


def read_image_rows(files: list[Path], optional: Collection[str]) -> Iterator[DatasetRow]:
    """Yield the rows of Parquet files of the Hub, with their images and the columns of ``optional``."""
    for row in parquet_source_rows(files, COLUMNS, optional, image="image"):
        yield row._replace(values={**row.values, "image_name": f"of {row.position}"})


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

    def json_of(self, *words: str, whose: str) -> JsonFile | None:
        """The one JSON file with all of ``words`` in its name. DataError, with ``whose``, for several."""
        names = {name.removesuffix(".zip") for name in self.files if name.endswith((".json", ".json.zip"))}
        fitting = [name for name in sorted(names) if {*words} <= set(re.split("[^a-z]+", name.lower()))]
        if len(fitting) > 1:
            raise DataError(
                f"{whose}{self.root} has several files of {' '.join(words)}: {', '.join(fitting)}. Leave one."
            )
        return self.json(fitting[0]) if fitting else None

    def pair(self, reading: SourceReading, pool: str, names: tuple[str, str], lacks: str) -> AnnotationPair:
        """The questions and annotations of these names, with as many questions as the card says.

        Raises DataError, which begins with ``lacks`` and the name of the file that is not there.
        """
        questions, annotations = (self.json(name) for name in names)
        if questions is None or annotations is None:
            absent = names[0] if questions is None else names[1]
            raise DataError(f"{lacks} {absent}. {reading.card.raw}")
        pair = AnnotationPair.read(pool, questions, annotations)
        reading.expect_rows(str(questions), len(pair.questions), reading.card.pools[pool])
        return pair

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


@dataclass(frozen=True)
class AnnotationPair:
    """The entries of a file of questions and of the file of annotations that answers them."""

    pool: str
    files: tuple[JsonFile, JsonFile]
    questions: list[Any]
    annotations: list[Any]

    @classmethod
    def read(cls, pool: str, questions: JsonFile, annotations: JsonFile) -> AnnotationPair:
        """Raises DataError if one is not JSON or lacks its list."""
        entries = questions.entries("questions"), annotations.entries("annotations")
        return cls(pool, (questions, annotations), *entries)

    def rows(self, images: Images) -> Iterator[DatasetRow]:
        """Questions with their annotations; one without the other is rejected."""
        question_file, annotation_file = (Path(str(file)) for file in self.files)
        annotations: dict[str, Mapping[str, Any]] = {}
        for index, entry in enumerate(self.annotations):
            try:
                key = _id_of(entry)
                if key in annotations:
                    raise RowError(f"question {key} is annotated a second time", "Leave one annotation.")
                annotations[key] = entry
            except RowError as error:
                yield DatasetRow(annotation_file, f"entry {index}", {}, fault=error)
        unasked = dict.fromkeys(annotations)
        for index, entry in enumerate(self.questions):
            try:
                key = _id_of(entry)
                unasked.pop(key, None)
                if key not in annotations:
                    raise RowError(f"question {key} has no annotation in {annotation_file}", "Add it there.")
                values = _values(entry, annotations[key], images)
                yield DatasetRow(question_file, f"question_id {entry['question_id']}", values)
            except RowError as error:
                yield DatasetRow(question_file, f"entry {index}", {}, fault=error)
        for key in unasked:
            fault = RowError(
                f"it answers a question that is not in {question_file}", "Add the question there."
            )
            yield DatasetRow(annotation_file, f"question_id {key}", {}, fault=fault)


def _values(entry: Mapping[str, Any], annotation: Mapping[str, Any], images: Images) -> dict[str, Any]:
    image_id = id_of({**annotation, **entry}, "image_id")
    names = coco_names(image_id)
    return {
        "question_id": entry["question_id"],
        "question": entry.get("question"),
        "answers": annotation.get("answers"),
        "image_name": " or ".join(names),
        "image": next((images[name] for name in names if name in images), None),
        "group": image_id,
        "meta": {"image_id": image_id, "answer_type": annotation.get("answer_type")},
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


def _id_of(entry: Any) -> str:
    if not isinstance(entry, Mapping):
        raise RowError(f"it is {quote(entry)}, not a mapping", "Take the file as its authors publish it.")
    return id_of(entry, "question_id")
