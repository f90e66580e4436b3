"""OK-VQA: questions on COCO images that need knowledge from outside the image.

Each pool comes from Parquet files of the Hub or, where there are none, from the authors' files. Every
question is a group of its own: the official splits share no image, and the Hub's test files do not name
theirs, so that only this gives both layouts the same split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, LoadRequest, Source
from sgpu.datasets.source_rows import DatasetRow, SourceReading, files_of_split
from sgpu.datasets.sources.vqa import AnnotatorOptions, Folder, annotated, read_image_rows, read_pair

COCO = {"train": "train2014", "test": "val2014"}
HUB_SPLITS = {"train": ("train",), "test": ("val2014", "validation", "val", "test")}
OPTIONAL = ("answers_original", "id_image", "question_type", "answer_type")


def load_ok_vqa(request: LoadRequest) -> Source:
    """Load train and test with ten answers per question.

    Raises UsageError for options, DataError for absent, broken or incomplete files.
    """
    reading = SourceReading(CARD, request)
    options, folder = reading.options(AnnotatorOptions), Folder(reading.root)
    return reading.source({pool: annotated(reading, _rows(reading, folder, pool), options) for pool in COCO})


def _rows(reading: SourceReading, folder: Folder, pool: str) -> Iterator[DatasetRow]:
    # The pool's own folder first: below the root the files of both pools are found.
    for root in (folder.root / pool, folder.root):
        if root.is_dir() and (files := files_of_split(root, *HUB_SPLITS[pool])):
            yield from map(_hub_row, read_image_rows(reading, files, OPTIONAL, CARD.pools[pool]))
            return
    coco = COCO[pool]
    names = f"OpenEnded_mscoco_{coco}_questions.json", f"mscoco_{coco}_annotations.json"
    pair = folder.require_json(reading, *names)
    for row in read_pair(reading, pool, pair, folder.images(coco)):
        yield row._replace(values={**row.values, "group": None})


def _hub_row(row: DatasetRow) -> DatasetRow:
    values = row.values
    meta = {key: values.get(key) for key in ("question_type", "answer_type")}
    if (image_id := values.get("id_image")) is not None:
        meta["image_id"] = str(image_id)
    return row._replace(values={**values, "answers": _hub_answers(values), "meta": meta})


def _hub_answers(row: Mapping[str, Any]) -> Any:
    """The ten entries of the authors where a mirror keeps them beside a list of its own."""
    original = row.get("answers_original")
    if isinstance(original, list) and original and all(isinstance(entry, dict) for entry in original):
        return original
    return row["answers"]


CARD = DatasetCard(
    name="ok-vqa",
    paper_name="OKVQA",
    title="OK-VQA (Marino et al., CVPR 2019)",
    load=load_ok_vqa,
    licence="questions and answers: not stated on the cards seen; images: terms of COCO (Flickr)",
    citation=(
        "K. Marino, M. Rastegari, A. Farhadi, R. Mottaghi. OK-VQA: A Visual Question Answering Benchmark "
        "Requiring External Knowledge. CVPR 2019, arXiv 1906.00067. Images: COCO (Lin et al., ECCV 2014)."
    ),
    prompt="vqa",
    pools={"train": 9_009, "test": 5_046},
    paper=(9_000, 5_000),
    hub=(
        HubFiles(
            "Multimodal-Fatima/OK-VQA_train",
            ("data/train-*.parquet",),
            "78e937b0afc333cfe8fee21c4d56aa405b4d0682",
            folder="train",
        ),
        HubFiles(
            "lmms-lab/OK-VQA",
            ("data/val2014-*.parquet",),
            "c9f858961f4095a9aeef615057b0822cce967096",
            folder="test",
        ),
    ),
    raw=(
        "From https://okvqa.allenai.org download OpenEnded_mscoco_train2014_questions.json.zip, "
        "mscoco_train2014_annotations.json.zip, OpenEnded_mscoco_val2014_questions.json.zip and "
        "mscoco_val2014_annotations.json.zip; from http://images.cocodataset.org/zips/ train2014.zip and "
        "val2014.zip. Put all into one folder; nothing need be unpacked. Parquet files of the Hub go to its "
        "folders train and test."
    ),
    image_size=(640, 480),
    departures=Departure.of("ok-vqa"),
)
