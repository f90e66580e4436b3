"""A fitted model as one thing: load, predict, its training profile, its risk control."""

from __future__ import annotations

from typing import Any

__all__ = ["FittedModel", "load_model"]


def __getattr__(name: str) -> Any:
    """Models registered in MLflow import `load_model` from here; torch is loaded on first use only."""
    if name in __all__:
        from sgpu.fitted import model

        return getattr(model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
