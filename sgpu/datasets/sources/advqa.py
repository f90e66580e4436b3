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
from sgpu.datasets.sources.vqa import AnnotatorOptions, Folder, JsonFile, annotated, read_pair

LI_SPLITS = {"train": ("train",), "test": ("test", "val")}  # answers of test may be held back
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
    options, folder = reading.options(AdvqaOptions), Folder(reading.root)
    if options.source == "li":
        files = {pool: _official_split(reading, folder, *splits) for pool, splits in LI_SPLITS.items()}
        images = folder.images()
        train, test = (questions for questions, _ in files.values())
        notes = [f"AVQA (Li et al.): train from {train}, test from {test}; row counts are not checked"]
    else:
        files = {"all": folder.require_json(reading, QUESTIONS, ANNOTATIONS)}
        images, notes = folder.images("val2017", "val2014"), []
    pools = {
        pool: annotated(reading, read_pair(reading, pool, pair, images), options)
        for pool, pair in files.items()
    }
    source = reading.source(pools, [*notes, _kinds(pools)])
    return replace(source, licence=LICENCES[options.source], citation=CITATIONS[options.source])


def _official_split(reading: SourceReading, folder: Folder, *splits: str) -> list[JsonFile]:
    """Return the questions and annotations of the first of ``splits`` that has both."""
    for split in splits:
        pair = [folder.json_of(split, kind) for kind in ("questions", "annotations")]
        if all(pair):
            return [file for file in pair if file]
    raise reading.lacks(folder.root, f"no questions and annotations of {' or '.join(splits)}")


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
