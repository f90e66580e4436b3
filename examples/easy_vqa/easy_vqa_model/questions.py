"""Easy-VQA: questions on drawn shapes of 64 x 64 pixels, from the package `easy-vqa` (Zhou, 2019).

No published benchmark, but real images with right answers that come without a download. The package is only
read as files, never imported.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sgpu.datasets.base import DatasetCard, LoadRequest, Question, Source
from sgpu.datasets.fields import RowError, number_of, quote, require_text
from sgpu.datasets.image_files import FileImage
from sgpu.datasets.source_rows import DatasetRow, SourceReading
from sgpu.errors import DataError, MissingDependencyError
from sgpu.provenance import package_version

PACKAGE = "easy_vqa"
KINDS = dict.fromkeys(("yes", "no"), "yes-no") | dict.fromkeys(("circle", "rectangle", "triangle"), "shape")
ALIASES = {"gray": ("grey",)}
REMEDY = "Install the package easy-vqa 1.0 again."


def load(request: LoadRequest) -> Source:
    """Both pools; a group is one image. Raises DataError, MissingDependencyError, UsageError.

    Without a root the installed package is read; a root is a folder laid out as the package's ``data``.
    """
    reading = SourceReading.without_options(CARD, request)
    data, revision = (request.root, request.revision) if request.root else _package_data()
    answers = frozenset(_text(data / "answers.txt").split())
    pools = {}
    for pool in CARD.pools:
        folder = data / pool / "images"
        images = {file.name: file for file in folder.iterdir()} if folder.is_dir() else {}
        rows = _rows(data / pool / "questions.json")
        pools[pool] = reading.pool(pool, rows, partial(_question, pool, answers, images))
    return reading.source(pools, revision=revision)


def _question(
    pool: str, answers: frozenset[str], images: Mapping[str, Path], number: int, row: DatasetRow
) -> Question:
    entry = row.values["entry"]
    if not isinstance(entry, list) or len(entry) != 3:
        raise RowError(f"the entry is {quote(entry)}, not [question, answer, image id]", REMEDY)
    values = dict(zip(("question", "answer", "image id"), entry, strict=True))
    answer = require_text(values, "answer")
    if answer not in answers:
        raise RowError(f"answer is {quote(answer)}, outside {', '.join(sorted(answers))}", REMEDY)
    text, image_id = require_text(values, "question"), number_of(values, "image id")
    if (name := f"{image_id}.png") not in images:
        raise RowError(f"the image {row.file.parent / 'images' / name} is absent", REMEDY)
    return Question(
        f"{pool}:{number}",
        text,
        (answer, *ALIASES.get(answer, ())),
        group=f"{pool}:{image_id}",
        meta={"kind": KINDS.get(answer, "color")},
        all_answers=(answer,),
        image=FileImage(images[name]),
    )


def _package_data() -> tuple[Path, str]:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingDependencyError(
            f"data set {CARD.name!r} comes in the package easy-vqa, which is not installed: "
            "pip install easy-vqa==1.0"
        )
    revision = f"easy-vqa {package_version('easy-vqa') or 'of unknown version'}"
    return Path(spec.origin).parent / "data", revision


def _rows(file: Path) -> Iterator[DatasetRow]:
    try:
        entries: Any = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not JSON: {error}. {REMEDY}") from None
    if not isinstance(entries, list):
        raise DataError(f"{file} holds {quote(entries)}, not a list of questions. {REMEDY}")
    for number, entry in enumerate(entries):
        yield DatasetRow(file, f"row {number}", {"entry": entry})


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}. {REMEDY}") from None


CARD = DatasetCard(
    name="easy-vqa",
    title="easy-VQA",
    load=load,
    licence="MIT",
    citation="V. Zhou. easy-VQA. https://github.com/vzhou842/easy-VQA, 2019.",
    prompt="plain",
    pools={"train": 38_575, "test": 9_673},
    raw="Nothing to download: pip install easy-vqa==1.0.",
    packages=("easy-vqa",),
    max_tokens=16,
    image_size=(64, 64),
    question_tokens=9,
    answer_tokens=2,
)
