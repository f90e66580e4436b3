"""VizWiz-VQA: questions that blind people asked about photos they took, some of which nobody can answer.

The official train questions are only in the authors' files. Where they are absent, the validation questions
of the Hub serve instead, which are fewer.
"""

from __future__ import annotations

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, LoadRequest, Source
from sgpu.datasets.source_rows import DatasetRow, SourceReading, files_of_split
from sgpu.datasets.sources.vqa import AnnotatorOptions, Folder, Images, annotated, read_image_rows

VALIDATION_ROWS = 4_319


def load_vizwiz(request: LoadRequest) -> Source:
    """Load one pool with ten answers per question.

    Raises UsageError for options, DataError for absent, broken or incomplete files.
    """
    reading = SourceReading(CARD, request)
    options, folder = reading.options(AnnotatorOptions), Folder(reading.root)
    if annotations := folder.json("train.json", "Annotations.zip"):
        rows, images = annotations.rows("image"), folder.images("train")
        reading.expect_rows(str(annotations), len(rows), CARD.pools["all"])
        return reading.source({"all": annotated(reading, (_train_row(images, row) for row in rows), options)})
    files = files_of_split(folder.root, "val", "validation")
    if not files:
        raise reading.lacks(folder.root, "neither train.json nor Parquet files")
    rows = read_image_rows(reading, files, {"category"}, VALIDATION_ROWS)
    note = (
        f"train.json is not in {folder.root}: these are the {len(rows):,} validation questions, too few "
        "for 10,000 train and 2,000 test questions. Ask for 3,319 and 1,000, or add the files of the "
        "train split."
    )
    return reading.source({"all": annotated(reading, map(_validation_row, rows), options)}, [note])


def _train_row(images: Images, row: DatasetRow) -> DatasetRow:
    name, answer_type = row.values.get("image"), row.values.get("answer_type")
    meta = {"answer_type": answer_type, "answerable": row.values.get("answerable")}
    given = {"question_id": name, "image_name": name, "image": images.get(str(name)), "meta": meta}
    return row._replace(values={**row.values, **given})


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
