"""From the name of a model to the engine that runs it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sgpu.engines.base import EngineConfig, has_own_models
from sgpu.errors import UsageError
from sgpu.models.cards import CARDS, EMBEDDED, ImageLimits, ModelCard
from sgpu.models.weights import embedded_weights, made_weights, needs_conversion, needs_making
from sgpu.registry import PLUGIN_REMEDY, Registry, unknown_name
from sgpu.study.resolve import Resolved, resolve
from sgpu.study.specs import ModelSpec

# A server scales images itself; larger ones only take longer to send.
SERVED_IMAGES = ImageLimits(max_pixels=1280 * 28 * 28, tokens="qwen2.5-vl")

_LOG = logging.getLogger(__name__)
MODELS = {card.name: card for card in CARDS}
MODEL_PLUGINS = Registry("model", {}, group="sgpu.models", reserved=MODELS)


def find_card(name: str) -> ModelCard | None:
    """Return the card of a registered name, ours or a plug-in's; None for any other name."""
    if name in MODELS:
        return MODELS[name]
    return MODEL_PLUGINS.get(name) if name in MODEL_PLUGINS else None


def model_card(name: str) -> ModelCard:
    """Return the card of a registered name, or make one for a local folder of weights.

    A folder called like a registered model's repository, also as a snapshot in the Hugging Face cache, keeps
    that model's settings. Raises UsageError for a name that is neither, with the nearest spelling.
    """
    if card := find_card(name):
        return card
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return _local_card(folder)
    raise UsageError(
        unknown_name("model", name, sorted([*MODELS, *MODEL_PLUGINS]))
        + f" A folder that holds config.json and weights also works. {PLUGIN_REMEDY}"
    )


def card_of(spec: ModelSpec) -> ModelCard:
    """Return the card of a study's model, or make one for a model that only its server knows.

    Raises UsageError for a name that is neither a card's nor a server's model.
    """
    if spec.engine and has_own_models(spec.engine) and not (spec.card or find_card(spec.name)):
        return ModelCard(
            name=spec.name, source=spec.model or spec.name, memory_gib=0.0, engine=spec.engine,
            licence="of the server" if spec.engine == "openai" else "unknown", image=SERVED_IMAGES,
        )  # fmt: skip
    try:
        return model_card(spec.card_name)
    except UsageError as error:
        raise UsageError(
            f"{error} A server's model needs `engine: openai`, and its address as `base_url`."
        ) from None


def engine_name(spec: ModelSpec) -> str:
    """The engine that runs a study's model: the study's choice, or the card's."""
    return spec.engine or card_of(spec).engine


def served_name(spec: ModelSpec) -> str:
    """How its server calls a study's model."""
    card = card_of(spec)
    return spec.model or (card.name if card.packaged else card.source)


def served_config(spec: ModelSpec) -> EngineConfig:
    """Return how to ask a server for a study's model; by default as vLLM serves the card's."""
    card = card_of(spec)
    options: dict[str, object] = dict(engine_options(card))
    if spec.model or spec.options or card.engine == "openai":
        options["vllm_fields"] = False
    if spec.options:
        options |= spec.options.model_dump(exclude_unset=True)
    return replace(
        _config(card, served_name(spec), "auto", card.dtype),  # the server computes in whatever it likes
        base_url=spec.base_url,
        api_key_env=spec.api_key_env,
        requests_per_minute=spec.requests_per_minute,
        revision=spec.revision or card.revision,
        options=options,
    )


def work_before_first_use(card: ModelCard) -> str | None:
    """Return what `engine_config` will first do once on this machine, for a person who waits, or None."""
    if card.weights and needs_making(card.name, card.weights):
        return f"making its weights from a package, once on this machine: {card.weights.work}"
    if card.source.startswith(EMBEDDED) and needs_conversion(card.source.removeprefix(EMBEDDED)):
        return "converting the packaged weights, once on this machine"
    return None


def engine_config(
    card: ModelCard, resolved: Resolved | None = None, say: Callable[[str], None] = _LOG.info
) -> EngineConfig:
    """Return how to build the card's engine. Makes weights from a package if this machine has none yet.

    ``resolved`` is what the run computes on, by default what this machine would. Whether weights can be had
    is checked before, by `sgpu.models.machine`.
    """
    resolved, model = resolved or resolve("auto"), card.source
    if card.weights:
        model = str(made_weights(card.name, card.weights, say))
    elif model.startswith(EMBEDDED):
        model = str(embedded_weights(model.removeprefix(EMBEDDED)))
    return _config(card, model, resolved.device, resolved.engine_dtype(card))


def _config(card: ModelCard, model: str, device: str, dtype: str) -> EngineConfig:
    return EngineConfig(
        model=model,
        revision=card.revision,
        dtype=dtype,
        max_model_len=card.max_model_len,
        max_num_seqs=card.max_num_seqs,
        tensor_parallel_size=card.tensor_parallel_size,
        device=device,
        options=engine_options(card),
        prompt_form=card.prompt_form,
    )


def engine_options(card: ModelCard) -> dict[str, object]:
    """What a card says to its engine beside where the weights are."""
    by_name = {
        "chat_options": card.chat_options,
        "processor_options": card.image.processor_options if card.image else {},
    }
    return {name: options for name, options in by_name.items() if options}


def _local_card(folder: Path) -> ModelCard:
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if not size:
        raise UsageError(f"{folder} holds config.json but no .safetensors file; other formats are refused.")
    return replace(
        _settings_of(folder),
        name=folder.name,
        source=str(folder.absolute()),
        revision=None,
        gated=False,
        memory_gib=round(size / 2**30, 2),
    )


def _settings_of(folder: Path) -> ModelCard:
    """The registered card whose repository the folder is called after, else one with default settings."""
    path = folder.resolve()
    # The Hugging Face cache: models--ORGANISATION--NAME/snapshots/COMMIT
    name = path.parent.parent.name.rpartition("--")[2] if path.parent.name == "snapshots" else path.name
    for card in CARDS:
        if name.lower() in (card.name, card.source.rpartition("/")[2].lower()):
            return card
    return ModelCard(name=name, source=str(folder), licence="unknown", memory_gib=0.0)
