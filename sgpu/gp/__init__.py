"""The Gaussian-process classifier of spectra (pure: no Ray, no files but those of a fit)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgpu.gp.classifier import GPClassifier, Prediction
    from sgpu.gp.fitting import FitReport

__all__ = ["FitReport", "GPClassifier", "Prediction"]


def __getattr__(name: str) -> Any:
    # Imported on first use: the names of kernels are read with every study and need no torch.
    if name in __all__:
        from sgpu.gp import classifier

        return getattr(classifier, name)
    raise AttributeError(f"module 'sgpu.gp' has no attribute {name!r}")
