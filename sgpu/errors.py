"""Every error that SGPU raises on purpose, with the exit code that the command line gives it.

A message names what was wrong (file, row, value), the bound it broke, and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class SgpuError(Exception):
    """Base of all deliberate errors; the command line prints its text without a traceback."""

    exit_code = 1


class UsageError(SgpuError):
    """A bad command or study file: nothing was run."""

    exit_code = 2


class DataError(SgpuError):
    """An input file or row that cannot be used."""


class MissingDependencyError(SgpuError):
    """A package that the chosen path needs is not installed."""


class PluginError(SgpuError):
    """An installed plug-in that cannot be used: its name is taken, or it cannot be loaded."""


class StageError(SgpuError):
    """A stage did not produce what it promised; what it finished is kept for the next run."""


class HeldError(StageError):
    """Another run is working in the same place: the same command can be run again when that has ended."""


class GivenUpError(StageError):
    """Rows failed for a reason outside themselves; once it is mended, the next run asks for these rows."""


class UnavailableError(SgpuError):
    """What a row needed was not there: a server, its quota, a budget. Says nothing of the row itself."""


class BudgetError(UnavailableError):
    """A call may cost more than is left of its budget."""


class IntegrityError(SgpuError):
    """A file whose content does not match its recorded checksum, or of a kind that we refuse to load."""


class TrainingError(SgpuError):
    """A classifier could not be fitted to the given data."""


class QuarantineError(SgpuError):
    """The run finished, but more rows were quarantined, or more labels are missing, than the study allows."""

    exit_code = 3


class InterruptedRunError(SgpuError):
    """The user stopped the run; it can be resumed."""

    exit_code = 130


@contextmanager
def resumable(kept: str = "What is finished is kept") -> Iterator[None]:
    """Ctrl-C in here is an error that says what is ``kept`` for the same command."""
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted. {kept}: the same command goes on from there.") from None


@contextmanager
def readable(what: str, remedy: str) -> Iterator[None]:
    """JSON read in here that lacks something, or holds something else, is a DataError with the remedy."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{what} cannot be read ({error}); {remedy}") from error


class PromptError(SgpuError, ValueError):
    """Prompts that no engine can be asked, so that none was; ``reasons`` by their places among all given."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = dict(reasons)


class EngineDiedError(SgpuError):
    """The engine's process is gone; the actor that held it must be replaced."""
