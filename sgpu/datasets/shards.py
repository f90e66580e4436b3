"""Split questions as rows of the questions table, with the bytes of their images, a batch at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from sgpu.datasets.base import Question, RejectedRow
from sgpu.datasets.split import SplitResult, SplitRow
from sgpu.errors import DataError
from sgpu.storage.tables import QUESTIONS

# Rows of one row group: what a reader holds at once. Images of 4 MB each make 256 MB of 64 of them.
IMAGE_ROWS = 64
TEXT_ROWS = 8192


def question_batches(split: SplitResult, unreadable: list[RejectedRow]) -> Iterator[pa.Table]:
    """The rows of a split, ordered by where their images lie, so that each archive is read once.

    An image that cannot be read stands as empty bytes, which the sampling stage quarantines; the reason is
    appended to ``unreadable``.
    """
    with_images = any(row.question.image is not None for row in split.rows)
    rows = sorted(split.rows, key=_image_order) if with_images else split.rows
    size = IMAGE_ROWS if with_images else TEXT_ROWS
    for start in range(0, len(rows), size):
        records = [_record(row, split.dataset, unreadable) for row in rows[start : start + size]]
        yield pa.Table.from_pylist(records, schema=QUESTIONS.schema)


def questions_table(split: SplitResult) -> pa.Table:
    """All rows of a split without images, in its order."""
    return pa.concat_tables([QUESTIONS.schema.empty_table(), *question_batches(split, [])])


def row_sha256(question: str, references: tuple[str, ...], image_sha256: str | None) -> str:
    """What a source changed in a row shows here."""
    content = json.dumps([question, list(references), image_sha256], ensure_ascii=False)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def _image_order(row: SplitRow) -> tuple[str, int, str]:
    image = row.question.image
    return image.order if image else ("", 0, row.question.question_id)


def _record(row: SplitRow, dataset: str, unreadable: list[RejectedRow]) -> dict[str, Any]:
    question = row.question
    image = _image(question, dataset, unreadable)
    image_sha256 = hashlib.sha256(image).hexdigest() if image is not None else None
    return {
        "question_id": question.question_id,
        "group": question.group,
        "question": question.text,
        "references": list(question.references),
        "all_answers": list(question.all_answers or question.references),
        "image": image,
        "image_sha256": image_sha256,
        "split": row.split,
        "position": row.position,
        "meta": json.dumps(question.meta, sort_keys=True, ensure_ascii=False),
        "row_sha256": row_sha256(question.text, question.references, image_sha256),
    }


def _image(question: Question, dataset: str, unreadable: list[RejectedRow]) -> bytes | None:
    if question.image is None:
        return None
    try:
        return question.image.read()
    except DataError as error:
        remedy = "Fetch the source again; the question is quarantined when it is asked"
        unreadable.append(RejectedRow(dataset, question.question_id, str(error), remedy))
        return b""
