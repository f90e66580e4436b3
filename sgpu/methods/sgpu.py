"""SGPU: the calibrated probability of a Gaussian-process classifier on the spectrum."""

from __future__ import annotations

from sgpu.methods.base import TrainedMethod

METHOD = TrainedMethod(
    name="sgpu",
    title="SGPU",
    needs=frozenset({"eigenvalues"}),
    reference="SGPU paper",
)
