"""AdVQA: questions that people wrote so that a VQA model of their time would fail, on COCO images.

The paper names AdVQA (Sheng et al.) and cites AVQA (Li et al.). Both are published as VQA v2 files, and
``source`` chooses: "sheng" has one labelled split, which serves train and test; "li" has official splits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from sgpu.datasets.base import DatasetCard, Departure, LoadRequest, Question, Source
from sgpu.datasets.source_rows import SourceReading
from sgpu.datasets.sources.vqa import AnnotationPair, AnnotatorOptions, Folder, annotated
from sgpu.errors import DataError

KINDS = ("questions", "annotations")
QUESTIONS = "v1_OpenEnded_mscoco_val2017_advqa_questions.json"
ANNOTATIONS = "v1_mscoco_val2017_advqa_annotations.json"
CITATIONS = {
    "sheng": (
        "S. Sheng, A. Singh, V. Goswami, J. Magana, T. Thrush, W. Galuba, D. Parikh, D. Kiela. "
        "Human-Adversarial Visual Question Answering. NeurIPS 2021, arXiv 2106.02280. Images: COCO (Lin et "
        "al., ECCV 2014)."
    ),
    "li": (
        "L. Li, J. Lei, Z. Gan, J. Liu. Adversarial VQA: A New Benchmark for Evaluating the Robustness of "
        "VQA Models. ICCV 2021, arXiv 2106.00245."
    ),
}
LICENCES = {
    "sheng": "questions and answers: CC BY-NC 4.0; images: terms of COCO (Flickr)",
    "li": "not stated where we looked: see https://adversarialvqa.org",
}


class AdvqaOptions(AnnotatorOptions):
    """``source``: "sheng" (AdVQA) or "li" (AVQA)."""

    source: Literal["sheng", "li"] = "sheng"


def load_advqa(request: LoadRequest) -> Source:
    """Load the questions, with ten annotators each.

    Raises UsageError for options, DataError for absent, broken or incomplete files.
    """
    reading = SourceReading(CARD, request)
    options = reading.options(AdvqaOptions)
    folder = Folder(reading.root)
    if options.source == "li":
        pairs, notes = _official_splits(folder)
        images = folder.images()
    else:
        lacks = f"data set {CARD.name!r}: {folder.root} has no"
        pairs = [folder.pair(reading, "all", (QUESTIONS, ANNOTATIONS), lacks)]
        notes = []
        images = folder.images("val2017", "val2014")
    pools = {pair.pool: annotated(reading, pair.rows(images), options) for pair in pairs}
    source = reading.source(pools, [*notes, _kinds(pools)])
    return replace(source, licence=LICENCES[options.source], citation=CITATIONS[options.source])


def _official_splits(folder: Folder) -> tuple[list[AnnotationPair], list[str]]:
    """Train, and test or else val. The published test answers may be held back."""
    pairs, whose = [], f"data set {CARD.name!r}, source 'li': "
    for pool, splits in {"train": ["train"], "test": ["test", "val"]}.items():
        files = [[folder.json_of(split, kind, whose=whose) for kind in KINDS] for split in splits]
        questions, annotations = next(filter(all, files), (None, None))
        if questions is None or annotations is None:
            raise DataError(
                f"{whose}{folder.root} has no questions and annotations of {' or '.join(splits)}. {CARD.raw}"
            )
        pairs.append(AnnotationPair.read(pool, questions, annotations))
    train, test = (pair.files[0] for pair in pairs)
    return pairs, [f"AVQA (Li et al.): train from {train}, test from {test}; row counts are not checked"]


def _kinds(pools: Mapping[str, Sequence[Question]]) -> str:
    questions = [question for pool in pools.values() for question in pool]
    yes_no = sum(question.meta["yes_no"] for question in questions)
    unanswerable = sum(question.meta["n_unanswerable"] > 0 for question in questions)
    return (
        f"kept and flagged in meta: {yes_no} of {len(questions)} questions with the consensus yes or no, "
        f"{unanswerable} that at least one annotator calls unanswerable"
    )


CARD = DatasetCard(
    name="advqa",
    paper_name="ADVQA",
    title="AdVQA (Sheng et al., NeurIPS 2021)",
    load=load_advqa,
    licence=LICENCES["sheng"],
    citation=CITATIONS["sheng"],
    prompt="vqa",
    pools={"all": 10_000},
    paper=(6_000, 2_000),
    raw=(
        f"Download https://dl.fbaipublicfiles.com/advqa/{QUESTIONS} and "
        f"https://dl.fbaipublicfiles.com/advqa/{ANNOTATIONS}, and the COCO images "
        "http://images.cocodataset.org/zips/val2017.zip (val2014 serves as well), which need not be "
        "unpacked, into one folder. With the option `source: li`: the question and annotation files of AVQA "
        "(https://adversarialvqa.org), 'train', 'val' or 'test' and 'questions' or 'annotations' in their "
        "names, with their images."
    ),
    image_size=(640, 480),
    departures=Departure.of("advqa"),
)
