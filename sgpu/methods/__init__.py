"""Uncertainty methods, one a file; the functions here are pure and take one response set or arrays."""

from sgpu.methods.base import METHODS, CellFeatures, Method, TrainedMethod, all_methods
from sgpu.methods.clustering import entailment_clusters
from sgpu.methods.cos_eigenscore import cos_eigenscore
from sgpu.methods.cov_eigenscore import cov_eigenscore
from sgpu.methods.discrete_semantic_entropy import discrete_semantic_entropy
from sgpu.methods.kernel_language_entropy import kernel_language_entropy
from sgpu.methods.likelihood import log_perplexity, predictive_entropy
from sgpu.methods.self_consistency import self_consistency
from sgpu.methods.semantic_entropy import semantic_entropy
from sgpu.methods.spectral import largest_eigenvalue, spectral_entropy
from sgpu.methods.umpire import balancing_alpha, umpire

__all__ = [
    "METHODS",
    "CellFeatures",
    "Method",
    "TrainedMethod",
    "all_methods",
    "balancing_alpha",
    "cos_eigenscore",
    "cov_eigenscore",
    "discrete_semantic_entropy",
    "entailment_clusters",
    "kernel_language_entropy",
    "largest_eigenvalue",
    "log_perplexity",
    "predictive_entropy",
    "self_consistency",
    "semantic_entropy",
    "spectral_entropy",
    "umpire",
]
