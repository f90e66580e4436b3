"""SAPLMA: a network trained on the hidden state of one answer (see `sgpu.probes.saplma`)."""

from __future__ import annotations

from sgpu.methods.base import TrainedMethod

METHOD = TrainedMethod(
    name="saplma",
    title="SAPLMA",
    needs=frozenset({"layer_hidden"}),
    reference="Azaria and Mitchell 2023",
)
