"""VizWiz-VQA: questions that blind people asked about photos they took, some of which nobody can answer.

The official train questions are only in the authors' files. Where they are absent, the validation questions
of the Hub serve instead, which are fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, RejectedRow, Request, Source
from sgpu.datasets.checks import expect_rows, require_root
from sgpu.datasets.image_files import ParquetImage
from sgpu.datasets.options import read_options
from sgpu.datasets.parquet_rows import files_of_split, iter_rows, rows_without_image
from sgpu.datasets.source_rows import shown
from sgpu.datasets.sources.annotators import AnnotatedRow, AnnotatorSettings, check_rows
from sgpu.datasets.sources.vqa_v2 import Folder, Images, JsonFile
from sgpu.errors import DataError

NAME = "vizwiz"
LICENCE = "CC BY 4.0"
CITATION = (
    "D. Gurari, Q. Li, A. Stangl, A. Guo, C. Lin, K. Grauman, J. Luo, J. Bigham. VizWiz Grand Challenge: "
    "Answering Visual Questions from Blind People. CVPR 2018, arXiv 1802.08218."
)
RAW = (
    "Download https://vizwiz.cs.colorado.edu/VizWiz_final/vqa_data/Annotations.zip and "
    "https://vizwiz.cs.colorado.edu/VizWiz_final/images/train.zip into one folder; neither need be unpacked. "
    "Without them the Parquet files of the Hub's validation split serve (data/val-*.parquet of "
    "lmms-lab/VizWiz-VQA)."
)
VALIDATION_ROWS = 4_319
COLUMNS = ("question_id", "question", "answers")


def load(request: Request) -> Source:
    """One pool with ten answers a question.

    Raises UsageError for options, DataError for absent, broken or incomplete files.
    """
    settings = read_options(NAME, AnnotatorSettings, request.options)
    folder = Folder(require_root(NAME, request, RAW))
    notes: tuple[str, ...] = ()
    if annotations := folder.json("train.json", "Annotations.zip"):
        rows = list(_train_rows(annotations, folder))
        expect_rows(NAME, str(annotations), len(rows), CARD.pools["all"], request)
    elif files := files_of_split(folder.root, "val", "validation"):
        rows = list(_validation_rows(files))
        expect_rows(NAME, f"the validation split in {files[0].parent}", len(rows), VALIDATION_ROWS, request)
        notes = (
            f"train.json is not in {folder.root}: these are the {len(rows):,} validation questions, too few "
            "for 10,000 train and 2,000 test questions. Ask for 3,319 and 1,000, or add the files of the "
            "train split.",
        )
    else:
        raise DataError(f"data set {NAME!r}: {folder.root} has neither train.json nor Parquet files. {RAW}")
    checked = check_rows(rows, settings, ["all"])
    return Source(NAME, request.revision, LICENCE, CITATION, checked.pools, tuple(checked.rejected), notes)


def _train_rows(annotations: JsonFile, folder: Folder) -> Iterator[AnnotatedRow | RejectedRow]:
    entries, images = annotations.entries(), folder.images("train")
    for index, entry in enumerate(entries):
        row = f"entry {index}"
        if not isinstance(entry, Mapping):
            reason = f"it is {shown(entry)}, not a mapping"
            yield RejectedRow(str(annotations), row, reason, "Take the file as its authors publish it.")
        else:
            yield _train_row(str(annotations), row, entry, images)


def _train_row(file: str, row: str, entry: Mapping[str, Any], images: Images) -> AnnotatedRow | RejectedRow:
    name = entry.get("image")
    if not isinstance(name, str) or not name:
        return RejectedRow(file, row, f"image is {shown(name)}, not a file name", "Give its file name.")
    return AnnotatedRow(
        pool="all",
        file=file,
        row=row,
        question_id=name,
        text=entry.get("question"),
        answers=entry.get("answers"),
        image_name=name,
        image=images.get(name),
        meta={"answer_type": entry.get("answer_type"), "answerable": entry.get("answerable")},
    )


def _validation_rows(files: list[Path]) -> Iterator[AnnotatedRow]:
    without_image = {file: rows_without_image(file) for file in files}
    for file, index, row in iter_rows(files, COLUMNS, {"category"}):
        yield AnnotatedRow(
            pool="all",
            file=str(file),
            row=f"row {index}",
            question_id=row["question_id"],
            text=row["question"],
            answers=row["answers"],
            image_name=str(row["question_id"]),
            image=None if index in without_image[file] else ParquetImage(file, index),
            meta={"answer_type": row.get("category")},
        )


CARD = DatasetCard(
    name=NAME,
    title="VizWiz-VQA (Gurari et al., CVPR 2018)",
    load=load,
    licence=LICENCE,
    citation=CITATION,
    prompt="vqa-unanswerable",
    pools={"all": 20_523},
    paper=(10_000, 2_000),
    hub=(HubFiles("lmms-lab/VizWiz-VQA", ("data/val-*.parquet",)),),
    raw=RAW,
    image_size=(1224, 1632),
    departures=(
        Departure(
            "split",
            "10,000 train and 2,000 test questions, both from the original train set",
            "the same, by hashed image names; without the raw files 3,319 and 1,000 of validation",
            "of the sets with answers the Hub has only validation; the authors have train",
        ),
        Departure(
            "unanswerable questions",
            "not mentioned",
            "kept: 'unanswerable' is right where the annotators agree on it, and the prompt allows it",
            "more than a quarter of the train questions have it as their answer; meta tells them apart",
        ),
        Departure(
            "references",
            "one correct answer; how it comes from the annotators is not said",
            "every answer that three of the ten gave; else the most frequent one",
            "three annotators make an answer fully right by the measure of VQA",
        ),
    ),
)
