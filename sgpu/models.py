"""From the name of a model to the engine that runs it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sgpu.engines.base import EngineConfig
from sgpu.errors import UsageError
from sgpu.model_cards import CARDS, ImageLimits, ModelCard
from sgpu.registry import unknown_name
from sgpu.weights import embedded_weights, needs_conversion

__all__ = [
    "MODELS",
    "ImageLimits",
    "ModelCard",
    "engine_config",
    "model_card",
    "needs_conversion_of",
]

EMBEDDED = "embedded:"
MODELS = {card.name: card for card in CARDS}


def model_card(name: str) -> ModelCard:
    """The card of a registered name, or a card made for a local folder of weights.

    A folder called like a registered model's repository, also as a snapshot in the Hugging Face cache, keeps
    that model's settings. Raises UsageError for a name that is neither, with the nearest spelling.
    """
    if name in MODELS:
        return MODELS[name]
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return _local_card(folder)
    raise UsageError(
        unknown_name("model", name, sorted(MODELS))
        + " A folder that holds config.json and weights also works."
    )


def needs_conversion_of(card: ModelCard) -> bool:
    """Whether `engine_config` will first convert packaged weights, which takes about 20 s."""
    return card.source.startswith(EMBEDDED) and needs_conversion(card.source.removeprefix(EMBEDDED))


def engine_config(card: ModelCard, device: str = "auto") -> EngineConfig:
    """How to build the card's engine. Converts embedded weights if this machine has not done so yet.

    Whether the weights can be had is checked before, by `sgpu.access`.
    """
    if card.source.startswith(EMBEDDED):
        model = str(embedded_weights(card.source.removeprefix(EMBEDDED)))
    else:
        model = card.source
    options: dict[str, object] = {}
    if card.chat_options:
        options["chat_options"] = card.chat_options
    if card.image is not None and card.image.processor_options:
        options["processor_options"] = card.image.processor_options
    return EngineConfig(
        model=model,
        revision=card.revision,
        dtype=card.dtype,
        max_model_len=card.max_model_len,
        max_num_seqs=card.max_num_seqs,
        tensor_parallel_size=card.tensor_parallel_size,
        device=device,
        options=options,
        prompt_form=card.prompt_form,
    )


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
