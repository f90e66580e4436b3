"""Engines, encoders and extractors as the workers of stages open them: once for all workers of an actor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sgpu.encoders import Encoder, load_encoder
from sgpu.engines.base import ENGINES, Engine, EngineConfig
from sgpu.runtime.held import hold

if TYPE_CHECKING:
    from sgpu.hidden.extractor import HiddenStateExtractor


def open_engine(name: str, config: Mapping[str, Any], **paid: Any) -> Engine:
    """Open the engine ``name``; ``paid`` says from which account its calls are paid."""
    return hold(["engine", name, config], lambda: ENGINES.get(name)(EngineConfig(**config), **paid))


def open_encoder(**encoder: Any) -> Encoder:
    """Open an encoder; arguments are those of `load_encoder`."""
    return hold(["encoder", encoder], lambda: load_encoder(**encoder))


def open_extractor(config: Mapping[str, Any], layers: Sequence[int]) -> HiddenStateExtractor:
    """Open the model that hidden states of these layers come from."""
    from sgpu.hidden.extractor import HiddenStateExtractor

    key = ["extractor", config, list(layers)]
    return hold(key, lambda: HiddenStateExtractor(EngineConfig(**config), layers))
