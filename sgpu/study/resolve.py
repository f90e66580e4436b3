"""What a study leaves open and its first command decides: the device, and the number formats of models.

Both are recorded in the run's folder. Answers depend on the number format, so later commands on the folder
keep it, whatever the machine; see `resolve_as_recorded`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sgpu.errors import UsageError
from sgpu.models.cards import ModelCard
from sgpu.models.machine import cpu_dtype, on_cpu


@dataclass(frozen=True)
class Resolved:
    """Where engines and encoders of a run compute, and in which number format.

    ``dtype`` is that of models whose card says bfloat16; a CPU without units for it takes float32.
    ``encoder_dtype`` is that of encoders and classifiers set to "auto", which GPU workers resolve themselves.
    """

    device: str  # "cpu" or "cuda"
    dtype: str
    encoder_dtype: str

    def engine_dtype(self, card: ModelCard) -> str:
        """Return what the card's model computes in."""
        return self.dtype if card.dtype == "bfloat16" else card.dtype

    def encoder_dtype_for(self, dtype: str) -> str:
        """Return what an encoder or classifier computes in for the ``dtype`` of a study."""
        return self.encoder_dtype if dtype == "auto" else dtype


def resolve(device: str) -> Resolved:
    """Decide for a study whose ``device`` is "auto", "cpu" or "cuda" what this machine computes on and in."""
    if not on_cpu(device):
        return Resolved("cuda", "bfloat16", "auto")
    return Resolved("cpu", cpu_dtype(), cpu_dtype())


def resolve_as_recorded(record: Mapping[str, Any], device: str) -> Resolved:
    """Return what an earlier command recorded; a device that the study names by itself counts before that.

    Raises UsageError if the record names a GPU that this machine does not have.
    """
    recorded = Resolved(**record)
    if device == "auto" and recorded.device == "cuda" and on_cpu("auto"):
        raise UsageError(
            "run.json says that this run computes on a GPU, and this machine has none that torch can use. "
            "Continue on a machine with a GPU, or with --set resources.device=cpu."
        )
    return recorded if device == "auto" else replace(recorded, device=device)
