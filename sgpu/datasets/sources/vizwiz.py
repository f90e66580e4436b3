"""VizWiz-VQA: questions that blind people asked about photos they took, some of which nobody can answer.

The official train questions are only in the authors' files. Where they are absent, the validation questions
of the Hub serve instead, which are fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, LoadRequest, Source
from sgpu.datasets.fields import RowError, quote
from sgpu.datasets.source_rows import DatasetRow, SourceReading, files_of_split
from sgpu.datasets.sources.vqa import AnnotatorOptions, Folder, JsonFile, annotated, read_image_rows
from sgpu.errors import DataError

VALIDATION_ROWS = 4_319


def load_vizwiz(request: LoadRequest) -> Source:
    """Load one pool with ten answers per question.

    Raises UsageError for options, DataError for absent, broken or incomplete files.
    """
    reading = SourceReading(CARD, request)
    options, folder = reading.options(AnnotatorOptions), Folder(reading.root)
    notes: tuple[str, ...] = ()
    if annotations := folder.json("train.json", "Annotations.zip"):
        rows = list(_train_rows(annotations, folder))
        reading.expect_rows(str(annotations), len(rows), CARD.pools["all"])
    elif files := files_of_split(folder.root, "val", "validation"):
        rows = [_validation_row(row) for row in read_image_rows(files, {"category"})]
        reading.expect_rows(f"the validation split in {files[0].parent}", len(rows), VALIDATION_ROWS)
        notes = (
            f"train.json is not in {folder.root}: these are the {len(rows):,} validation questions, too few "
            "for 10,000 train and 2,000 test questions. Ask for 3,319 and 1,000, or add the files of the "
            "train split.",
        )
    else:
        raise DataError(
            f"data set {CARD.name!r}: {folder.root} has neither train.json nor Parquet files. {CARD.raw}"
        )
    return reading.source({"all": annotated(reading, rows, options)}, notes)


def _train_rows(annotations: JsonFile, folder: Folder) -> Iterator[DatasetRow]:
    entries, images = annotations.entries(), folder.images("train")
    file = Path(str(annotations))
    for index, entry in enumerate(entries):
        try:
            values = _train_values(entry)
            image = images.get(values["image_name"])
            yield DatasetRow(file, f"entry {index}", {**values, "image": image})
        except RowError as error:
            yield DatasetRow(file, f"entry {index}", {}, fault=error)


def _train_values(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        raise RowError(f"it is {quote(entry)}, not a mapping", "Take the file as its authors publish it.")
    name = entry.get("image")
    if not isinstance(name, str) or not name:
        raise RowError(f"image is {quote(name)}, not a file name", "Give its file name.")
    return {
        "question_id": name,
        "question": entry.get("question"),
        "answers": entry.get("answers"),
        "image_name": name,
        "meta": {"answer_type": entry.get("answer_type"), "answerable": entry.get("answerable")},
    }


def _validation_row(row: DatasetRow) -> DatasetRow:
    meta, name = {"answer_type": row.values.get("category")}, str(row.values["question_id"])
    return row._replace(values={**row.values, "image_name": name, "meta": meta})


CARD = DatasetCard(
    name="vizwiz",
    title="VizWiz-VQA (Gurari et al., CVPR 2018)",
    load=load_vizwiz,
    licence="CC BY 4.0",
    citation=(
        "D. Gurari, Q. Li, A. Stangl, A. Guo, C. Lin, K. Grauman, J. Luo, J. Bigham. VizWiz Grand Challenge: "
        "Answering Visual Questions from Blind People. CVPR 2018, arXiv 1802.08218."
    ),
    prompt="vqa-unanswerable",
    pools={"all": 20_523},
    paper=(10_000, 2_000),
    hub=(
        HubFiles("lmms-lab/VizWiz-VQA", ("data/val-*.parquet",), "d428a2dae984f79cf1b9d99467dfa883e0c30686"),
    ),
    hub_rows=VALIDATION_ROWS,
    raw=(
        "Download https://vizwiz.cs.colorado.edu/VizWiz_final/vqa_data/Annotations.zip and "
        "https://vizwiz.cs.colorado.edu/VizWiz_final/images/train.zip into one folder; neither need be "
        "unpacked. Without them the Parquet files of the Hub's validation split serve (data/val-*.parquet of "
        "lmms-lab/VizWiz-VQA)."
    ),
    image_size=(1224, 1632),
    departures=Departure.of("vizwiz"),
)
