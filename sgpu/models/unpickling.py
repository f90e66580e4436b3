"""The one process that reads pickled weights: ``python -m sgpu.models.unpickling FILE TARGET``.

PyTorch's restricted reader makes tensors and plain containers and refuses everything else. It runs in a
process of its own (see `sgpu.models.weights.converted_weights`), so that a hole in it meets no credentials.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def convert(pickled: Path, target: Path) -> None:
    """Write the tensors of a state dict as safetensors; SystemExit with the reason where it is not one."""
    try:
        state = torch.load(pickled, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a malformed file makes of the reader
        # PyTorch's own text advises how to allow what it refused: only what that was is passed on.
        found = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it calls {found[1]}" if found else f"it cannot be read ({type(error).__name__})"
        raise SystemExit(reason) from None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise SystemExit("it holds something else than tensors by name")
    # Copies, because safetensors refuses tensors that share memory, as tied weights do.
    save_file({name: value.clone() for name, value in state.items()}, target, metadata={"format": "pt"})


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
