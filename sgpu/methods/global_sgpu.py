"""Global-SGPU: one classifier for the spectra of all cells of a study."""

from __future__ import annotations

from sgpu.methods.base import TrainedMethod

METHOD = TrainedMethod(
    name="global_sgpu",
    title="Global-SGPU",
    needs=frozenset({"eigenvalues"}),
    reference="SGPU paper",
)
