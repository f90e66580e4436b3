"""SGPU: when to trust a model, from the spectrum of its sampled answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sgpu.fitted.model import FittedModel, load_model

__all__ = ["FittedModel", "__version__", "load_model"]


def __getattr__(name: str) -> Any:
    # Imported on first use: `import sgpu` must stay cheap and need no torch.
    if name in {"FittedModel", "load_model"}:
        from sgpu.fitted import model as fitted

        return getattr(fitted, name)
    raise AttributeError(f"module 'sgpu' has no attribute {name!r}")
