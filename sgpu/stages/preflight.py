"""Everything about a study that can be known to be wrong before any work is done."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sgpu.datasets.fetch import check_copy, revisions
from sgpu.datasets.response_files import check_file
from sgpu.encoders import find_encoder
from sgpu.encoders.cards import card_named, is_on_hub
from sgpu.engines.base import ENGINES, has_own_models
from sgpu.engines.prompts import prompt_family
from sgpu.entailment.checkpoint import hub_name, locate
from sgpu.errors import MissingDependencyError, SgpuError, UsageError
from sgpu.methods.base import METHODS, TrainedMethod, configured_method
from sgpu.models.cards import ModelCard
from sgpu.models.fetched import HubRepository
from sgpu.models.machine import check_access, check_memory
from sgpu.probes.base import ProbeMethod
from sgpu.registry import unknown_name
from sgpu.runtime.session import named_cluster
from sgpu.stages.decode import image_decoder
from sgpu.stages.entail import built_from, entailment_model, needs_entailment
from sgpu.stages.run import check_device
from sgpu.study.benchmark import Study
from sgpu.study.data_specs import QuestionsSpec, ResponsesSpec
from sgpu.study.models import card_of, engine_name, model_card


def check_study(study: Study, address: str | None = None) -> None:
    """Raise what is wrong with a study; of several things that are missing, one error that lists them.

    With the ``address`` of a Ray cluster the GPUs of this machine say nothing and are not looked at, so that
    the study has to name its device.
    """
    cluster = named_cluster(address)
    if cluster:
        check_device(study)
    for method in study.methods:
        METHODS.check(method)
    for method, settings in study.method_settings.items():
        _check_settings(method, settings)
    _check_responses(study)
    _check_system_prompts(study)
    for cell in study.cells():
        spec = study.dataset(cell.dataset)
        if isinstance(spec, QuestionsSpec) and spec.card.image_size is not None:
            image_decoder(study, cell)  # a model that reads text only is never asked about an image
    checks = [partial(_check_package, card.name, engine) for card, engine in _engines(study)]
    if study.resources.device != "cpu" and not cluster:
        checks.append(partial(check_memory, loaded_cards(study)))
    problems = [*missing(study), *_errors(checks)]
    if len(problems) == 1:
        raise problems[0]
    if problems:
        listed = "\n".join(f"- {problem}".replace("\n", "\n  ") for problem in problems)
        raise UsageError(f"{len(problems)} things are missing before this study can start:\n{listed}")


def missing(study: Study) -> list[SgpuError]:
    """Return an error for each data set, encoder, classifier and model that the study cannot have here."""
    checks: list[Callable[[], object]] = []
    if model := _checkpoint(study):
        checks.append(partial(locate, model, study.entailment.revision))
    checks += [partial(find_encoder, name) for name in _encoders(study)]
    return missing_datasets(study) + _errors([*checks, partial(check_access, loaded_cards(study))])


def missing_datasets(study: Study) -> list[SgpuError]:
    """Return an error for each data set of which the study needs a folder, as the Hub has too little."""
    specs = _remote_datasets(study)
    return _errors(partial(check_copy, spec.card, spec.n_train + spec.n_test) for spec in specs)


def _remote_datasets(study: Study) -> list[QuestionsSpec]:
    """Return the data sets that the study names without a folder of their files."""
    return [spec for spec in study.datasets if isinstance(spec, QuestionsSpec) and spec.path is None]


def _checkpoint(study: Study) -> str | None:
    """Return the entailment classifier; an engine of the backend's own is among the models."""
    return entailment_model(study) if needs_entailment(study) and built_from(study) == "checkpoint" else None


def _encoders(study: Study) -> list[str]:
    names = dict.fromkeys([study.encoder.name, *study.sensitivity.encoders])
    if needs_entailment(study) and built_from(study) == "encoder" and (name := entailment_model(study)):
        names[name] = None
    return list(names)


def hub_repositories(study: Study) -> list[HubRepository]:
    """Return the repositories of the Hub that a study reads, each once."""
    found = [
        HubRepository(card.source, card.revision)
        for card in loaded_cards(study)
        if not card.packaged and not Path(card.source).is_dir()
    ]
    if (model := _checkpoint(study)) and not Path(model).is_dir():
        found.append(HubRepository(*hub_name(model, study.entailment.revision)))
    for name in _encoders(study):
        if (card := card_named(name)) is not None and is_on_hub(card):
            found.append(HubRepository(card.hub_id, card.revision))
    for spec in _remote_datasets(study):
        pairs = zip(spec.card.hub, revisions(spec.card, spec.revision), strict=True)
        found += [HubRepository(files.repo, rev, "dataset", tuple(files.patterns)) for files, rev in pairs]
    return list(dict.fromkeys(found))


def loaded_cards(study: Study) -> list[ModelCard]:
    """Return the cards whose weights the study's own engines load, each once."""
    own = [card for card, engine in _engines(study) if not has_own_models(engine)]
    return list({(card.source, card.revision): card for card in own}.values())


def _errors(checks: Iterable[Callable[[], object]]) -> list[SgpuError]:
    errors = []
    for check in checks:
        try:
            check()
        except SgpuError as error:
            errors.append(error)
    return errors


def _check_responses(study: Study) -> None:
    for dataset in study.datasets:
        if isinstance(dataset, ResponsesSpec):
            if not dataset.path.is_file():
                raise UsageError(f"data set {dataset.name!r}: there is no file {dataset.path}")
            check_file(dataset.path)


def _check_package(model: str, engine: str) -> None:
    package = getattr(ENGINES.get(engine), "package", None)
    if package is not None and importlib.util.find_spec(package) is None:
        raise MissingDependencyError(
            f"model {model!r} runs on engine {engine!r}, but the package {package} is not "
            "installed. Run `make install` (CPU) or install the gpu extra, name another engine in the "
            "study, or bring your own answers (datasets: [{kind: responses, path: ...}])."
        )


def _check_system_prompts(study: Study) -> None:
    """A server has a template of its own; for the others the family says whether there is a system role."""
    for model in study.models if _samples(study) else ():
        card = card_of(model)
        if model.system_prompt is None or card.prompt_form is None or has_own_models(engine_name(model)):
            continue
        if not prompt_family(card.prompt_form).has_system_role:
            raise UsageError(
                f"model {model.name!r} has a `system_prompt`, but its prompt form {card.prompt_form!r} has "
                "no system role. Write the text into `sampling.prompt` instead."
            )


def _check_settings(name: str, settings: Mapping[str, Any]) -> None:
    method = configured_method(name, settings)
    if not isinstance(method, TrainedMethod):
        return
    if not isinstance(method, ProbeMethod):
        raise UsageError(
            f"method {name!r} takes no `method_settings`; those of its classifier stand under `classifier`"
        )
    for setting in settings:
        if setting not in method.settings:
            raise UsageError(unknown_name(f"setting of method {name!r}:", setting, method.settings))
    method.probe(**settings)


def _engines(study: Study) -> list[tuple[ModelCard, str]]:
    """Every model that this study asks, as its card at the study's revision, and its engine."""
    used: list[tuple[ModelCard, str]] = []
    for model in study.models if _samples(study) else ():
        card = card_of(model)
        used.append((replace(card, revision=model.revision or card.revision), engine_name(model)))
    judges = [study.judge_of(dataset.name) for dataset in study.datasets]
    others: list[str | None] = [name for judge in judges for name in judge.models]
    if needs_entailment(study) and built_from(study) == "engine":
        others.append(study.entailment.model)
    cards = [model_card(name) for name in dict.fromkeys(others) if name]
    return used + [(card, card.engine) for card in cards]


def _samples(study: Study) -> bool:
    return any(not isinstance(dataset, ResponsesSpec) for dataset in study.datasets)
