"""Which entry of transformers' ``hidden_states`` a layer's name stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sgpu.engines.base import EngineConfig
from sgpu.errors import UsageError


@dataclass(frozen=True)
class Shape:
    """The language part of a model: its decoder layers and the length of a hidden state."""

    n_layers: int
    dim: int


def model_shape(config: EngineConfig) -> Shape:
    """Read from the model's configuration alone, without its weights."""
    from transformers import AutoConfig

    model_config = AutoConfig.from_pretrained(config.model, revision=config.revision, trust_remote_code=False)
    text = model_config.get_text_config(decoder=True)
    return Shape(text.num_hidden_layers, text.hidden_size)


def layer_index(name: str | int | float, n_layers: int) -> int:
    """The index among the n_layers + 1 hidden states, of which 0 is the embedding of the tokens.

    "last" is the last layer, after the final norm, as transformers returns it. "middle" is half the number
    of hidden states, as in INSIDE's code: 15 of 30 layers. A whole number is the index itself, or counts from
    the end if it is negative (-1 is "last"); a fraction is a relative depth, 1.0 being "last". Raises
    UsageError for a layer that the model does not have.
    """
    if name == "last":
        return n_layers
    if name == "middle":
        return (n_layers + 1) // 2
    if isinstance(name, float) and 0 < name <= 1:
        return max(1, round(name * n_layers))
    if isinstance(name, int) and -n_layers - 1 <= name <= n_layers:
        return name % (n_layers + 1)
    raise UsageError(
        f"there is no layer {name!r}: the model has {n_layers}. Give a number from 0 (the embedding) to "
        f"{n_layers}, from -1 (the last) to {-n_layers - 1}, a fraction in (0, 1], 'middle', 'last' or 'all'."
    )


def layer_indices(names: Sequence[str | int | float], n_layers: int) -> list[int]:
    """The indices of several layers, ascending, each once; "all" are all of them, the embedding included."""
    if "all" in names:
        return list(range(n_layers + 1))
    return sorted({layer_index(name, n_layers) for name in names})
