"""VQA-RAD: clinicians' questions on radiology images, one answer each, from Parquet files of the Hub.

The source has no ids: a question is named by its split and row, and meta keeps the hash of its text and
answer, so that another order of rows is noticed.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Literal

from pydantic import BaseModel, ConfigDict

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, Question, Request, Source
from sgpu.datasets.checks import expect_columns, expect_rows, require_root
from sgpu.datasets.image_files import ParquetImage
from sgpu.datasets.options import read_options
from sgpu.datasets.parquet_rows import column_names
from sgpu.datasets.response_rows import RowError
from sgpu.datasets.source_rows import (
    SourceReading,
    SourceRow,
    parquet_source_rows,
    require_parquet,
    text_of,
)
from sgpu.datasets.sources.annotators import YES_NO, normalised
from sgpu.errors import DataError

NAME = "vqa-rad"
LICENCE = "CC0-1.0"
CITATION = (
    "J. Lau, S. Gayen, A. Ben Abacha, D. Demner-Fushman. A dataset of clinically generated visual "
    "questions and answers about radiology images. Scientific Data 5, 180251, 2018."
)
RAW = (
    "Download the Parquet files of https://huggingface.co/datasets/flaviagiammarino/vqa-rad (its folder "
    "data) into the folder; the names say the split: train-*.parquet and test-*.parquet."
)
COLUMNS = ("question", "answer")


class Settings(BaseModel):
    """``disjoint``: "image" takes the images of the test set out of train."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    disjoint: Literal["none", "image"] = "none"


def load(request: Request) -> Source:
    """The official splits.

    Raises UsageError for options, DataError for absent, broken or incomplete files.
    """
    settings = read_options(NAME, Settings, request.options)
    root = require_root(NAME, request, RAW)
    pools: dict[str, list[Question]] = {}
    reading = SourceReading()
    for split in ("train", "test"):
        files = require_parquet(NAME, root, split, RAW)
        for file in files:
            expect_columns(file, column_names(file), {"image", *COLUMNS})
        rows = parquet_source_rows(files, COLUMNS)
        question_of = partial(_question, split, settings.disjoint == "image")
        pools[split], n_rows = reading.questions(rows, question_of)
        expect_rows(NAME, f"{split} in {files[0].parent}", n_rows, CARD.pools[split], request)
    notes = (_shared_images(pools),)
    return Source(NAME, request.revision, LICENCE, CITATION, pools, tuple(reading.rejected), notes)


def _question(split: str, disjoint: bool, number: int, row: SourceRow) -> Question:
    text, answer = (text_of(row.values, column) for column in COLUMNS)
    image = ParquetImage(row.file, row.row)
    try:
        sha256 = hashlib.sha256(image.read()).hexdigest()
    except DataError as error:
        raise RowError(f"its image cannot be read: {error}", "Fetch the file again.") from None
    meta = {
        "kind": "closed" if normalised(answer) in YES_NO else "open",
        "image_sha256": sha256,
        "content_sha256": hashlib.sha256(f"{text}\x1f{answer}".encode()).hexdigest(),
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
    name=NAME,
    title="VQA-RAD (Lau et al., Scientific Data 2018)",
    load=load,
    licence=LICENCE,
    citation=CITATION,
    prompt="medical-vqa",
    pools={"train": 1_793, "test": 451},
    paper=(2_000, 500),
    hub=(
        HubFiles("flaviagiammarino/vqa-rad", ("data/*.parquet",), "bcf91e7654fb9d51c8ab6a5b82cacf3fafd2fae9"),
    ),
    raw=RAW,
    image_size=(1024, 1024),
    departures=(
        Departure(
            "size",
            "2,000 train and 500 test questions",
            "all 1,793 and 451 of the official splits",
            "the data set has 2,244 questions in all",
        ),
        Departure(
            "images in both splits",
            "not mentioned",
            "left as the official splits are; the share is told, and `disjoint: image` removes it",
            "nearly every test image is in train: answers do not show it, hidden states may",
        ),
    ),
)
