"""What this machine has, and whether the weights of a study's models can be had and held on it.

Nothing heavy is imported before a device or a number format is asked for.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from sgpu.errors import UsageError
from sgpu.models.cards import ModelCard
from sgpu.models.weights import download_command, find_lack
from sgpu.provenance import query_gpus


def visible_gpus() -> list[str]:
    """NVIDIA GPUs as "name, memory", as nvidia-smi lists them; empty without a driver."""
    return [", ".join(gpu) for gpu in query_gpus("name", "memory.total")]


def driver_version() -> str | None:
    """Of NVIDIA's driver, such as "580.95.05"; None without one."""
    return next((version for (version,) in query_gpus("driver_version")), None)


def on_cpu(device: str) -> bool:
    """Whether a device that a study names, "auto" among them, is the CPU of this machine."""
    import torch

    return device == "cpu" or (device == "auto" and not torch.cuda.is_available())


def device_for(name: str, device: str) -> Literal["cpu", "cuda"]:
    """Where ``name`` runs, put on "auto", "cpu" or "cuda"; UsageError for another name, or without a GPU."""
    import torch

    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"unknown {name} device {device!r}. Known: auto, cpu, cuda.")
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"{name} device 'cuda' was asked for, but torch sees no GPU. Use 'auto' or 'cpu'.")
    return "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"


def cpu_dtype() -> Literal["float32", "bfloat16"]:
    """What models compute in on this CPU: bfloat16 takes half the time, but only where it has units for it.

    Without them every product is converted and converted back, which takes two to four times as long.
    """
    import torch

    has = torch.cpu.get_capabilities()
    units = ("amx_bf16", "avx512_bf16", "bf16")  # the last one is ARM's
    return "bfloat16" if any(has.get(unit) for unit in units) else "float32"


def dtype_for(name: str, dtype: str, device: str, names: Sequence[str], on_gpu: Callable[[], str]) -> str:
    """What ``name`` computes in: one of ``names``, or "auto" for `cpu_dtype` and what ``on_gpu`` says.

    Raises UsageError for another name.
    """
    if dtype == "auto":
        return cpu_dtype() if device == "cpu" else on_gpu()
    if dtype not in names:
        raise UsageError(f"unknown {name} dtype {dtype!r}. Known: auto, {', '.join(names)}.")
    return dtype


def torch_cuda() -> str | None:
    """The CUDA version that the installed torch was built for, read without importing torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("version.py")
    cuda = runpy.run_path(str(path)).get("cuda") if path.is_file() else None
    return cuda if isinstance(cuda, str) else None


# What vLLM takes of a GPU; the rest of it is for the driver and other work.
USABLE_SHARE = 0.9


def check_access(cards: Sequence[ModelCard]) -> None:
    """Raise one UsageError that names every card whose weights cannot be loaded on this machine.

    Only the token and the cache are looked at. Whether the token's owner has accepted a licence is known to
    the Hub alone.
    """
    problems = [problem for card in cards if (problem := _why_not(card))]
    if problems:
        raise UsageError(
            f"the weights of {len(problems)} of {len(cards)} models cannot be had:\n"
            + "\n".join(f"- {problem}" for problem in problems)
            + "\nInstead of a model's name, `card` may also be a local folder with a copy of its weights."
        )


def check_memory(cards: Sequence[ModelCard]) -> None:
    """Raise one UsageError that names every card too large for the GPUs of this machine, if it has any."""
    gpus = sorted(visible_memory_gib(), reverse=True)
    problems = [problem for card in cards if gpus and (problem := _why_too_large(card, gpus))]
    if problems:
        raise UsageError(
            "the visible GPUs cannot hold:\n"
            + "\n".join(f"- {problem}" for problem in problems)
            + "\nTake a machine with larger or more GPUs, a smaller model, or a server (engine: openai)."
        )


def visible_memory_gib() -> list[float]:
    """Memory of each NVIDIA GPU that CUDA may use on this machine; empty where there is none."""
    memory = []
    for line in visible_gpus():
        size, _, unit = line.rpartition(",")[2].strip().partition(" ")
        if size.isdigit() and unit == "MiB":
            memory.append(int(size) / 1024)
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return memory
    # Devices may be named by UUID, so only their number is used.
    count = len([name for name in chosen.split(",") if name.strip() not in {"", "-1"}])
    return sorted(memory, reverse=True)[:count]


def _why_not(card: ModelCard) -> str | None:
    from huggingface_hub import get_token, is_offline_mode

    if card.packaged or Path(card.source).is_dir():
        return None
    lacking = find_lack(card.source, card.revision)
    if lacking is None:
        return None
    if is_offline_mode():
        command = f"`sgpu fetch` or {download_command(card.source, card.revision)}"
        return f"{card.name}: HF_HUB_OFFLINE is set, and {lacking}. Unset it, or run {command} first."
    if card.gated and not get_token():
        return (
            f"{card.name}: its weights are gated ({card.licence} licence), there is no Hugging Face token, "
            f"and {lacking}. Accept the licence at https://huggingface.co/{card.source} and set HF_TOKEN."
        )
    return None


def _why_too_large(card: ModelCard, gpus: Sequence[float]) -> str | None:
    """``gpus``: GiB of each, the largest first."""
    needed = card.tensor_parallel_size
    if needed > len(gpus):
        return f"{card.name}: it is split over {needed} GPUs, and {len(gpus)} are visible."
    share, usable = card.memory_gib / needed, gpus[needed - 1] * USABLE_SHARE
    if share <= usable:
        return None
    return (
        f"{card.name}: {share:.1f} GiB of weights on each of {needed} GPUs; {usable:.1f} GiB "
        f"({USABLE_SHARE:.0%} of {gpus[needed - 1]:.1f}) can be used."
    )
