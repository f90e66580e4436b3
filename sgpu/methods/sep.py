"""Semantic entropy probe: a line trained on the hidden state of one answer (see `sgpu.probes.sep`)."""

from __future__ import annotations

from sgpu.methods.base import TrainedMethod

METHOD = TrainedMethod(
    name="sep",
    title="SEP",
    needs=frozenset({"layer_hidden", "clusters"}),
    reference="Kossen et al. 2024",
    gives="probability of low semantic entropy",
    learns="discrete semantic entropies, without labels",
)
