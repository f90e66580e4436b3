"""Model cards: which weights a name stands for, and how an engine must be built for them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from sgpu.engines.base import EngineConfig
from sgpu.errors import UsageError
from sgpu.registry import unknown_name
from sgpu.weights import embedded_weights, needs_conversion

EMBEDDED = "embedded:"


@dataclass(frozen=True, kw_only=True)
class ImageLimits:
    """How images reach a model: what larger ones are scaled down to, and what its processor is told.

    ``tokens`` names the rule of `sgpu.plan.image_tokens` that says what one image costs.
    """

    max_pixels: int
    tokens: str
    processor_options: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """One answering or judging model.

    ``source`` is a Hugging Face id, a local folder, or ``embedded:NAME`` for weights in a pip package.
    ``memory_gib`` is what the weights take at ``dtype``, without the key-value cache.
    ``chat_options`` are passed to the chat template, for prompts that must not change from day to day.
    ``prompt_form`` names the family in `sgpu.engines.prompt_families` that the checkpoint's chat template
    must render like; None for a checkpoint of one's own. ``checkpoint_repetition_penalty`` is what its
    generation_config.json carries and what we do not apply unless a study sets it.
    """

    name: str
    source: str
    licence: str
    memory_gib: float
    revision: str | None = None
    engine: str = "vllm"
    dtype: str = "bfloat16"
    max_model_len: int = 2048
    max_num_seqs: int = 320
    tensor_parallel_size: int = 1
    gated: bool = False
    chat_options: dict[str, object] = field(default_factory=dict)
    prompt_form: str | None = None
    checkpoint_repetition_penalty: float = 1.0
    parameters: float = 0.0  # in units of 1e9, for the planner
    kv_bytes_per_token: int = 0
    image: ImageLimits | None = None  # None: reads text only


# Llama 3.1's chat template writes today's date into the system prompt unless it is told a date.
_LLAMA_31: dict[str, object] = {"date_string": "26 Jul 2024"}

_CARDS = (
    ModelCard(
        name="smollm2-135m-instruct",
        source="embedded:smollm2-135m-instruct",
        licence="Apache-2.0",
        memory_gib=0.3,
        max_model_len=1024,
    ),
    ModelCard(
        name="qwen2.5-3b-instruct",
        source="Qwen/Qwen2.5-3B-Instruct",
        licence="Qwen Research (non-commercial)",
        memory_gib=5.8,
    ),
    ModelCard(
        name="llama-3.1-8b-instruct",
        source="meta-llama/Llama-3.1-8B-Instruct",
        licence="Llama 3.1 Community",
        gated=True,
        memory_gib=15.0,
        chat_options=_LLAMA_31,
    ),
    ModelCard(
        name="llama-3.1-70b-instruct",
        source="meta-llama/Llama-3.1-70B-Instruct",
        licence="Llama 3.1 Community",
        gated=True,
        memory_gib=131.5,
        tensor_parallel_size=4,
        chat_options=_LLAMA_31,
    ),
)
MODELS = {card.name: card for card in _CARDS}


def model_card(name: str) -> ModelCard:
    """The card of a registered name, or a card made for a local folder of weights.

    Raises UsageError for a name that is neither, with the nearest spelling.
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

    Raises UsageError if the weights are gated and neither a token nor a local copy is there.
    """
    if card.source.startswith(EMBEDDED):
        model = str(embedded_weights(card.source.removeprefix(EMBEDDED)))
    else:
        model = card.source
        if card.gated:
            _check_access(card)
    return EngineConfig(
        model=model,
        revision=card.revision,
        dtype=card.dtype,
        max_model_len=card.max_model_len,
        max_num_seqs=card.max_num_seqs,
        tensor_parallel_size=card.tensor_parallel_size,
        device=device,
        options={"chat_options": card.chat_options} if card.chat_options else {},
    )


def _local_card(folder: Path) -> ModelCard:
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if not size:
        raise UsageError(f"{folder} holds config.json but no .safetensors file; other formats are refused.")
    return ModelCard(
        name=folder.name, source=str(folder.absolute()), licence="unknown", memory_gib=round(size / 2**30, 2)
    )


def _check_access(card: ModelCard) -> None:
    """Fail before any work if gated weights cannot be had; a download would fail hours later."""
    if Path(card.source).is_dir():
        return
    from huggingface_hub import get_token, try_to_load_from_cache

    cached = try_to_load_from_cache(card.source, "config.json", revision=card.revision)
    if isinstance(cached, str) or (get_token() and not os.environ.get("HF_HUB_OFFLINE")):
        return
    raise UsageError(
        f"the weights of {card.name} are gated ({card.licence} licence). Accept the licence at "
        f"https://huggingface.co/{card.source} and set HF_TOKEN, or pass the folder of a local copy as model."
    )
