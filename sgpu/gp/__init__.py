"""The Gaussian-process classifier of spectra (pure: no Ray, no files but those of a fit)."""

from __future__ import annotations

from sgpu.gp.classifier import GPClassifier, Prediction
from sgpu.gp.fitting import FitReport

__all__ = ["FitReport", "GPClassifier", "Prediction"]
