"""VQA-RAD: clinicians' questions on radiology images, one answer each, from Parquet files of the Hub.

The source has no ids: a question is named by its split and row, and meta keeps the hash of its text and
answer, so that another order of rows is noticed.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, LoadRequest, Question, Source
from sgpu.datasets.fields import RowError, require_text
from sgpu.datasets.image_files import ParquetImage
from sgpu.datasets.source_rows import DatasetRow, SourceOptions, SourceReading, parquet_source_rows
from sgpu.datasets.sources.vqa import YES_NO, normalised
from sgpu.errors import DataError
from sgpu.hashing import sha256_hex

COLUMNS = ("question", "answer")


class VqaRadOptions(SourceOptions):
    """``disjoint``: "image" takes the images of the test set out of train."""

    disjoint: Literal["none", "image"] = "none"


def load_vqa_rad(request: LoadRequest) -> Source:
    """Load the official splits.

    Raises UsageError for options, DataError for absent, broken or incomplete files.
    """
    reading = SourceReading(CARD, request)
    options = reading.options(VqaRadOptions)
    pools: dict[str, list[Question]] = {}
    for split in CARD.pools:
        files = reading.parquet_files(reading.root, split)
        rows = parquet_source_rows(files, COLUMNS, unread=["image"])
        question_of = partial(_question, split, options.disjoint == "image")
        pools[split] = reading.pool(split, rows, question_of, name=f"{split} in {files[0].parent}")
    return reading.source(pools, [_shared_images(pools)])


def _question(split: str, disjoint: bool, number: int, row: DatasetRow) -> Question:
    text, answer = (require_text(row.values, column) for column in COLUMNS)
    image = ParquetImage(row.file, row.row)
    try:
        sha256 = sha256_hex(image.read())
    except DataError as error:
        raise RowError(f"its image cannot be read: {error}", "Fetch the file again.") from None
    meta = {
        "kind": "closed" if normalised(answer) in YES_NO else "open",
        "image_sha256": sha256,
        "content_sha256": sha256_hex(f"{text}\x1f{answer}"),
    }
    question_id = f"{split}:{number:05d}"
    group = f"image:{sha256}" if disjoint else question_id
    return Question(question_id, text.strip(), (answer.strip(),), group, meta, (answer,), image)


def _shared_images(pools: dict[str, list[Question]]) -> str:
    images = {pool: {q.meta["image_sha256"] for q in questions} for pool, questions in pools.items()}
    shared = images["test"] & images["train"]
    share = len(shared) / max(1, len(images["test"]))
    questions = sum(q.meta["image_sha256"] in shared for q in pools["test"])
    return (
        f"{len(shared)} of {len(images['test'])} test images ({share:.1%}) are also in train, with "
        f"{questions} of {len(pools['test'])} test questions; the option `disjoint: image` takes them out "
        "of train"
    )


CARD = DatasetCard(
    name="vqa-rad",
    paper_name="VQARAD",
    title="VQA-RAD (Lau et al., Scientific Data 2018)",
    load=load_vqa_rad,
    licence="CC0-1.0",
    citation=(
        "J. Lau, S. Gayen, A. Ben Abacha, D. Demner-Fushman. A dataset of clinically generated visual "
        "questions and answers about radiology images. Scientific Data 5, 180251, 2018."
    ),
    prompt="medical-vqa",
    pools={"train": 1_793, "test": 451},
    paper=(2_000, 500),
    hub=(
        HubFiles("flaviagiammarino/vqa-rad", ("data/*.parquet",), "bcf91e7654fb9d51c8ab6a5b82cacf3fafd2fae9"),
    ),
    raw=(
        "Download the Parquet files of https://huggingface.co/datasets/flaviagiammarino/vqa-rad (its folder "
        "data) into the folder; the names say the split: train-*.parquet and test-*.parquet."
    ),
    image_size=(1024, 1024),
    departures=Departure.of("vqa-rad"),
)
