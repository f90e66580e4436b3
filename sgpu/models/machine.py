"""What this machine has; nothing heavy is imported before a device or a number format is asked for."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Literal


def visible_gpus() -> list[str]:
    """NVIDIA GPUs as "name, memory", as nvidia-smi lists them; empty without a driver."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def memory_bytes() -> int:
    """Physical memory, or the container's limit where that is less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        return min(physical, int(text))
    return physical


def on_cpu(device: str) -> bool:
    """Whether a device that a study names, "auto" among them, is the CPU of this machine."""
    import torch

    return device == "cpu" or (device == "auto" and not torch.cuda.is_available())


def cpu_dtype() -> Literal["float32", "bfloat16"]:
    """What models compute in on this CPU: bfloat16 takes half the time, but only where it has units for it.

    Without them every product is converted and converted back, which takes two to four times as long.
    """
    import torch

    has = torch.cpu.get_capabilities()
    units = ("amx_bf16", "avx512_bf16", "bf16")  # the last one is ARM's
    return "bfloat16" if any(has.get(unit) for unit in units) else "float32"


def torch_cuda() -> str | None:
    """The CUDA version that the installed torch was built for, read without importing torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("version.py")
    version_spec = importlib.util.spec_from_file_location("_torch_version", path)
    if version_spec is None or version_spec.loader is None or not path.is_file():
        return None
    module = importlib.util.module_from_spec(version_spec)
    version_spec.loader.exec_module(module)
    cuda = getattr(module, "cuda", None)
    return cuda if isinstance(cuda, str) else None
