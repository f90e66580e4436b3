"""Where a study does something else than the paper, or the paper is silent: one list for all who ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from sgpu.datasets.base import Departure
from sgpu.judges.base import asks_model
from sgpu.models.cards import ModelCard
from sgpu.study.benchmark import Study
from sgpu.study.data_specs import JudgeSpec, QuestionsSpec
from sgpu.study.models import find_card

Applies = Callable[[Study], bool]
TEXTS = Path(__file__).with_suffix(".yaml")
TEN_ANNOTATORS = {"advqa", "ok-vqa", "vizwiz"}


def departures(study: Study) -> list[Departure]:
    """Return what applies to this study: of its data sets in their order, then of models, judge, measures."""
    cards = list({spec.kind: spec.card for spec in _questions(study)}.values())
    of_data = [replace(d, topic=f"{card.name}: {d.topic}") for card in cards for d in card.departures]
    texts = yaml.safe_load(TEXTS.read_bytes())
    general = [Departure(topic, **texts[topic]) for topic, applies in GENERAL.items() if applies(study)]
    return [*of_data, *general]


def _questions(study: Study) -> list[QuestionsSpec]:
    return [spec for spec in study.datasets if isinstance(spec, QuestionsSpec)]


def _cards(study: Study) -> list[ModelCard]:
    return [card for model in study.models if (card := find_card(model.card_name))]


def _judges(study: Study) -> list[JudgeSpec]:
    return [study.judge_of(spec.name) for spec in study.datasets]


def _reads(*methods: str) -> Applies:
    """Return a test for studies that have one of these methods."""
    return lambda study: bool({*methods} & {*study.methods})


def _asks_a_model(study: Study) -> bool:
    return any(asks_model(judge.name) for judge in _judges(study))


# Which studies depart in what the file beside this one describes, by its topics.
GENERAL: Mapping[str, Applies] = {
    "answering prompt": lambda study: bool(_questions(study)),
    "number format": lambda study: any(card.image and card.dtype == "bfloat16" for card in _cards(study)),
    "repetition penalty": lambda study: any(
        card.checkpoint_repetition_penalty != 1 for card in _cards(study)
    ),
    "Idefics2": lambda study: any(card.prompt_form == "idefics2" for card in _cards(study)),
    "image size": lambda study: any(card.image and card.prompt_form for card in _cards(study)),
    "reference from ten annotators": lambda study: any(
        spec.kind in TEN_ANNOTATORS for spec in _questions(study)
    ),
    "judge's reading": _asks_a_model,
    "judge's prompt": lambda study: _asks_a_model(study) and any(j.guard for j in _judges(study)),
    "8B judge": lambda study: any("llama-3.1-8b-instruct" in judge.models for judge in _judges(study)),
    "tie of votes": lambda study: True,
    "no answer": lambda study: True,
    "validation questions": lambda study: any(spec.n_train for spec in _questions(study)),
    "length of answers": lambda study: any(
        (spec.sampling.max_tokens, spec.sampling.stop) == (64, ["\n"]) for spec in _questions(study)
    ),
    "log-probabilities": _reads("log_perplexity", "predictive_entropy", "semantic_entropy", "umpire"),
    "Instruct model": lambda study: any(m.card_name == "llama-3.1-8b-instruct" for m in study.models),
    "base model": lambda study: any(card.prompt_form == "llama-3.1-base" for card in _cards(study)),
    "GP inference": _reads("sgpu", "global_sgpu"),
    "pooled fit": lambda study: _reads("global_sgpu")(study) and study.classifier.inducing < 256,
    "global classifier": _reads("global_sgpu"),
    "unsafe predictions": _reads("sgpu", "global_sgpu"),
    "calibration error": lambda study: True,
    "kernel language entropy": _reads("kernel_language_entropy"),
    "Eigenscores": _reads("cov_eigenscore", "cos_eigenscore"),
    "UMPIRE": _reads("umpire"),
    "probes": _reads("saplma", "sep"),
    "GSM8K's validation questions": lambda study: any(
        spec.kind == "gsm8k" and spec.n_train == 0 and spec.n_validation for spec in _questions(study)
    ),
    "paraphrases": lambda study: study.sensitivity.embedding_sets > 0,
}
