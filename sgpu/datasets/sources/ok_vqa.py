"""OK-VQA: questions on COCO images that need knowledge from outside the image.

Each pool comes from Parquet files of the Hub or, where there are none, from the authors' files. Every
question is a group of its own: the official splits share no image, and the Hub's test files do not name
theirs, so that only this gives both layouts the same split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, RejectedRow, Request, Source
from sgpu.datasets.checks import expect_rows, require_root
from sgpu.datasets.image_files import ParquetImage
from sgpu.datasets.options import read_options
from sgpu.datasets.parquet_rows import files_of_split, iter_rows, rows_without_image
from sgpu.datasets.sources.annotators import AnnotatedRow, AnnotatorSettings, check_rows
from sgpu.datasets.sources.vqa_v2 import Folder, Pair, coco_names
from sgpu.errors import DataError

NAME = "ok-vqa"
LICENCE = "questions and answers: not stated on the cards seen; images: terms of COCO (Flickr)"
CITATION = (
    "K. Marino, M. Rastegari, A. Farhadi, R. Mottaghi. OK-VQA: A Visual Question Answering Benchmark "
    "Requiring External Knowledge. CVPR 2019, arXiv 1906.00067. Images: COCO (Lin et al., ECCV 2014)."
)
RAW = (
    "From https://okvqa.allenai.org download OpenEnded_mscoco_train2014_questions.json.zip, "
    "mscoco_train2014_annotations.json.zip, OpenEnded_mscoco_val2014_questions.json.zip and "
    "mscoco_val2014_annotations.json.zip; from http://images.cocodataset.org/zips/ train2014.zip and "
    "val2014.zip. Put all into one folder; nothing need be unpacked. Parquet files of the Hub go to its "
    "folders train and test."
)
COCO = {"train": "train2014", "test": "val2014"}
HUB_SPLITS = {"train": ("train",), "test": ("val2014", "validation", "val", "test")}
COLUMNS = ("question_id", "question", "answers")
OPTIONAL = ("answers_original", "id_image", "question_type", "answer_type")


def load(request: Request) -> Source:
    """Train and test with ten answers a question.

    Raises UsageError for options, DataError for absent, broken or incomplete files.
    """
    settings = read_options(NAME, AnnotatorSettings, request.options)
    root = require_root(NAME, request, RAW)
    folder = Folder(root)
    rows = [row for pool in COCO for row in _pool(folder, pool, request)]
    checked = check_rows(rows, settings, COCO)
    return Source(NAME, request.revision, LICENCE, CITATION, checked.pools, tuple(checked.rejected))


def _pool(folder: Folder, pool: str, request: Request) -> list[AnnotatedRow | RejectedRow]:
    # The pool's own folder first: below the root the files of both pools are found.
    for place in (folder.root / pool, folder.root):
        if place.is_dir() and (files := files_of_split(place, *HUB_SPLITS[pool])):
            rows = list(_hub_rows(files, pool))
            expect_rows(NAME, f"{pool} in {files[0].parent}", len(rows), CARD.pools[pool], request)
            return rows
    return list(_raw_rows(folder, pool, request))


def _hub_rows(files: list[Path], pool: str) -> Iterator[AnnotatedRow | RejectedRow]:
    without_image = {file: rows_without_image(file) for file in files}
    for file, index, row in iter_rows(files, COLUMNS, OPTIONAL):
        present = index not in without_image[file]
        meta = {key: row[key] for key in ("question_type", "answer_type") if row.get(key) is not None}
        yield AnnotatedRow(
            pool=pool,
            file=str(file),
            row=f"row {index}",
            question_id=row["question_id"],
            text=row["question"],
            answers=_hub_answers(row),
            image_name=f"of row {index}",
            image=ParquetImage(file, index) if present else None,
            meta=meta if row.get("id_image") is None else meta | {"image_id": str(row["id_image"])},
        )


def _hub_answers(row: dict[str, Any]) -> Any:
    """The ten entries of the authors where a mirror keeps them beside a list of its own."""
    original = row.get("answers_original")
    if isinstance(original, list) and original and all(isinstance(entry, dict) for entry in original):
        return original
    return row["answers"]


def _raw_rows(folder: Folder, pool: str, request: Request) -> Iterator[AnnotatedRow | RejectedRow]:
    coco = COCO[pool]
    names = f"OpenEnded_mscoco_{coco}_questions.json", f"mscoco_{coco}_annotations.json"
    questions, annotations = (folder.json(name) for name in names)
    if questions is None or annotations is None:
        absent = names[0] if questions is None else names[1]
        raise DataError(
            f"data set {NAME!r}, {pool}: {folder.root} has neither Parquet files of this pool nor "
            f"{absent}. {RAW}"
        )
    pair = Pair.read(pool, questions, annotations)
    expect_rows(NAME, str(questions), len(pair.questions), CARD.pools[pool], request)
    for row in pair.rows(coco_names, folder.images(coco)):
        yield replace(row, group=None) if isinstance(row, AnnotatedRow) else row


CARD = DatasetCard(
    name=NAME,
    title="OK-VQA (Marino et al., CVPR 2019)",
    load=load,
    licence=LICENCE,
    citation=CITATION,
    prompt="vqa",
    pools={"train": 9_009, "test": 5_046},
    paper=(9_000, 5_000),
    hub=(
        HubFiles("Multimodal-Fatima/OK-VQA_train", ("data/train-*.parquet",), folder="train"),
        HubFiles("lmms-lab/OK-VQA", ("data/val2014-*.parquet",), folder="test"),
    ),
    raw=RAW,
    image_size=(640, 480),
    departures=(
        Departure(
            "split",
            "9,000 train and 5,000 test questions",
            "9,000 of the official train and 5,000 of the official validation questions",
            "the official splits hold 9,009 and 5,046; which are left out is decided by hashed ids",
        ),
        Departure(
            "source",
            "OK-VQA without a source",
            "two mirrors on the Hub, one for each split, or the authors' files",
            "no mirror in Parquet has both splits; both layouts give the same ids and the same split",
        ),
        Departure(
            "references",
            "one correct answer; how it comes from the annotators is not said",
            "every answer that three of the ten gave; else the most frequent one",
            "three annotators make an answer fully right by the measure of VQA",
        ),
    ),
)
