"""Everything about a study that can be known to be wrong before any work is done."""

from __future__ import annotations

import importlib.util

from sgpu.encoders import find_encoder
from sgpu.entailment.checkpoint import locate
from sgpu.errors import MissingDependencyError, UsageError
from sgpu.methods.base import METHODS
from sgpu.models import model_card
from sgpu.stages.entail import entailment_model, needs_entailment
from sgpu.study import ResponsesSpec, Study

ENGINE_PACKAGES = {"vllm": "vllm", "transformers": "transformers", "openai": "openai"}


def check_study(study: Study) -> None:
    """Raise UsageError or MissingDependencyError for names, files and packages that are not there."""
    for method in study.methods:
        METHODS.check(method)
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
    if judge.agreement and judge.agreement.model:
        used.append((judge.agreement.model, None))
    if study.entailment.backend == "llm" and study.entailment.model and needs_entailment(study):
        used.append((study.entailment.model, None))
    return used
