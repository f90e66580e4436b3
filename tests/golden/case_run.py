"""What a case works with: its data, scratch folders, and the command line as a user has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"
# What somebody has set for other purposes must decide nothing here.
LEFT_OUT = ("DAGSTER_HOME", "RAY_ADDRESS", "FORCE_COLOR", "TERMINAL_WIDTH")
FIXED = {
    "COLUMNS": "100",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_TRACKING_URI": "none",
    # Units for bfloat16 round a product otherwise than code without them, which moves a probability by 5e-4:
    # every machine computes as one that has no such units.
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
}
LIMIT_SECONDS = 900


def environment() -> dict[str, str]:
    """That of every process of a case."""
    return {name: value for name, value in os.environ.items() if name not in LEFT_OUT} | FIXED


class NotAsExpected(Exception):
    """What a case cannot be compared after; the message says why."""


class CommandFailed(NotAsExpected):
    """`sgpu` ended with an exit code that the case does not expect; holds all that it printed."""


@dataclass(frozen=True)
class CaseRun:
    """One execution of a case.

    ``given`` is the case's stored data, which is never written to; ``work`` an empty scratch folder; ``out``
    an empty folder for what is compared: .csv, .json and text files.
    """

    given: Path
    work: Path
    out: Path

    def sgpu(
        self,
        *words: str | Path,
        exit_codes: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> str:
        """Run `sgpu WORDS` as a process of its own, in ``cwd`` (default: ``work``); returns what it printed.

        Raises CommandFailed for another exit code than those of ``exit_codes``.
        """
        command = [str(Path(sys.executable).with_name("sgpu")), *map(str, words)]
        done = subprocess.run(
            command,
            cwd=cwd or self.work,
            env={**environment(), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        if done.returncode not in exit_codes:
            raise CommandFailed(f"exit code {done.returncode} of {' '.join(command)}\n{done.stdout}")
        return done.stdout
