"""Where a study does something else than the paper, or the paper is silent: one list for all who ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sgpu.datasets.base import Departure
from sgpu.judges.base import asks_model
from sgpu.models.cards import ModelCard
from sgpu.study.benchmark import Study
from sgpu.study.data_specs import QuestionsSpec
from sgpu.study.models import MODELS

Applies = Callable[[Study], bool]
TEN_ANNOTATORS = {"advqa", "ok-vqa", "vizwiz"}


def departures(study: Study) -> list[Departure]:
    """What applies to this study: of its data sets, in their order, then of models, judge and measures."""
    cards = list({spec.kind: spec.card for spec in _questions(study)}.values())
    of_data = [replace(d, topic=f"{card.name}: {d.topic}") for card in cards for d in card.departures]
    return [*of_data, *(departure for departure, applies in GENERAL.items() if applies(study))]


def _questions(study: Study) -> list[QuestionsSpec]:
    return [spec for spec in study.datasets if isinstance(spec, QuestionsSpec)]


def _cards(study: Study) -> list[ModelCard]:
    return [MODELS[model.card_name] for model in study.models if model.card_name in MODELS]


def _asks_a_model(study: Study) -> bool:
    return any(asks_model(study.judge_of(spec.name).name) for spec in study.datasets)


# What every study may depart in, and which do.
GENERAL: Mapping[Departure, Applies] = {
    Departure(
        "answering prompt",
        "none is given",
        "written here by kind of question; a study can change it",
        "something must be asked; the wording moves the spectra, so it is in every result's settings",
    ): lambda study: bool(_questions(study)),
    Departure(
        "number format",
        "float16",
        "bfloat16",
        "Qwen2.5-VL overflows in float16 and then writes only exclamation marks",
    ): lambda study: any(card.image and card.dtype == "bfloat16" for card in _cards(study)),
    Departure(
        "repetition penalty",
        "not named; the library it used applies what a checkpoint carries (Qwen: 1.05)",
        "1.0 for all models unless the study sets another",
        "one setting for all models, written down",
    ): lambda study: any(card.checkpoint_repetition_penalty != 1 for card in _cards(study)),
    Departure(
        "Idefics2",
        "sampled like the others",
        "sampled by transformers, the prompt read once for all its answers",
        "vLLM does not serve it; equal in distribution to plain generate, which a test holds",
    ): lambda study: any(card.prompt_form == "idefics2" for card in _cards(study)),
    Departure(
        "image size",
        "not named",
        "larger images are scaled down to the model's bound (Qwen2.5-VL: 1,003,520 pixels, 1,280 tokens)",
        "one 12-megapixel photo would cost 15,552 tokens",
    ): lambda study: any(card.image and card.prompt_form for card in _cards(study)),
    Departure(
        "reference from ten annotators",
        "one slot, no word on how ten answers become one",
        "every answer that three or more of ten gave, else the most frequent one",
        "three of ten is what VQA accuracy counts as fully right",
    ): lambda study: bool({spec.kind for spec in _questions(study)} & TEN_ANNOTATORS),
    Departure(
        "judge's reading",
        "the text of its answer, yes or no",
        "P(yes) above one half among the yes and no tokens; unclear ones are missing, not wrong",
        "deterministic, and labels can be cut elsewhere later",
    ): _asks_a_model,
    Departure(
        "judge's prompt",
        "the answer stands in it as it is",
        "between marks; wrong if it only tells the judge what to say; several references in the plural",
        "an answer is written by the model that is judged, and could ask for a yes",
    ): lambda study: any(study.judge_of(s.name).guard for s in study.datasets) and _asks_a_model(study),
    Departure(
        "8B judge",
        "Llama-3.1-8B",
        "Llama-3.1-8B-Instruct",
        "the base model has no chat template",
    ): lambda study: any("llama-3.1-8b-instruct" in study.judge_of(s.name).models for s in study.datasets),
    Departure(
        "tie of votes",
        "majority; nothing on 10 of 20",
        "a tie is not a majority: the label is 0, and ties are counted",
        "a rule is needed",
    ): lambda study: True,
}
