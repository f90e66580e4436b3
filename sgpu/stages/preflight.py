"""Everything about a study that can be known to be wrong before any work is done."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from typing import Any

from sgpu.encoders import find_encoder
from sgpu.entailment.checkpoint import locate
from sgpu.errors import MissingDependencyError, UsageError
from sgpu.methods.base import METHODS, TrainedMethod, configured_method
from sgpu.models import model_card
from sgpu.registry import unknown_name
from sgpu.specs import ResponsesSpec
from sgpu.stages.entail import entailment_model, needs_entailment
from sgpu.stages.probe import PROBES
from sgpu.study import Study

SET_ELSEWHERE = ("seed", "position")  # of a probe: the study's seed, and hidden.sep_position
ENGINE_PACKAGES = {"vllm": "vllm", "transformers": "transformers", "openai": "openai"}


def check_study(study: Study) -> None:
    """Raise UsageError or MissingDependencyError for names, files and packages that are not there."""
    for method in study.methods:
        METHODS.check(method)
    for method, settings in study.method_settings.items():
        _check_settings(method, settings)
    find_encoder(study.encoder.name)
    for dataset in study.datasets:
        if isinstance(dataset, ResponsesSpec) and not dataset.path.is_file():
            raise UsageError(f"data set {dataset.name!r}: there is no file {dataset.path}")
    if needs_entailment(study):
        _check_entailment(study)
    for name, engine in _engines(study):
        card = model_card(name)
        package = ENGINE_PACKAGES[engine or card.engine]
        if importlib.util.find_spec(package) is None:
            raise MissingDependencyError(
                f"model {name!r} runs on engine {engine or card.engine!r}, but the package {package} is not "
                "installed. Run `make install` (CPU) or install the gpu extra, name another engine in the "
                "study, or bring your own answers (datasets: [{kind: responses, path: ...}])."
            )


def _check_settings(name: str, settings: Mapping[str, Any]) -> None:
    if not isinstance(configured_method(name, settings), TrainedMethod):
        return
    if name not in PROBES:
        raise UsageError(
            f"method {name!r} takes no `method_settings`; those of its classifier stand under `classifier`"
        )
    known = [
        setting for setting in inspect.signature(PROBES[name]).parameters if setting not in SET_ELSEWHERE
    ]
    for setting in settings:
        if setting not in known:
            raise UsageError(unknown_name(f"setting of method {name!r}:", setting, known))
    PROBES[name](**settings)


def _check_entailment(study: Study) -> None:
    """The files of the entailment backend are here; an engine of its own is checked with the others."""
    model = entailment_model(study)
    check = {"cosine": find_encoder, "deberta": lambda name: locate(name, study.entailment.revision)}
    if model is not None and study.entailment.backend in check:
        check[study.entailment.backend](model)


def _engines(study: Study) -> list[tuple[str, str | None]]:
    """(card, engine) of every model that this study loads."""
    used: list[tuple[str, str | None]] = []
    if any(not isinstance(dataset, ResponsesSpec) for dataset in study.datasets):
        used += [(model.card_name, model.engine) for model in study.models]
    judge = study.judge
    if judge.model:
        used.append((judge.model, None))
    used += [(other.model, None) for other in judge.agreement if other.model]
    if study.entailment.backend == "llm" and study.entailment.model and needs_entailment(study):
        used.append((study.entailment.model, None))
    return used
