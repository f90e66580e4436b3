"""Tracking without MLflow: records, and a tracker and its runs that keep nothing, which MLflow's override."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHAMPION = "champion"


@dataclass(frozen=True)
class TableVersion:
    """One Delta table as it was read: enough to read the same rows again."""

    name: str
    path: str
    version: int
    fingerprint: str
    rows: int | None = None
    context: str = "evaluation"


@dataclass(frozen=True)
class _Numbered:
    """A version of a registered model by its number."""

    name: str
    version: int

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


@dataclass(frozen=True)
class RegisteredFit(_Numbered):
    """A version of a registered model; ``created`` is False where the same bundle was registered before."""

    created: bool


@dataclass(frozen=True)
class Version(_Numbered):
    """One version of a registered model; ``sha256`` is that of its bundle, None if it was not recorded."""

    aliases: tuple[str, ...]
    sha256: str | None
    created: str
    n_answers: str | None


class StudyRun:
    """The parent run of one study; this one is nowhere.

    ``run_id``: MLflow's id of it; None if nothing is tracked.
    """

    run_id: str | None = None

    def log_cell(
        self,
        model: str,
        dataset: str,
        *,
        settings: Mapping[str, Any],
        metrics: Iterable[Mapping[str, Any]] = (),
        inputs: Sequence[TableVersion] = (),
        artifacts: Sequence[Path] = (),
        tags: Mapping[str, str] | None = None,
        error: str | None = None,
    ) -> str | None:
        """Log one cell as a nested run and return its id; ``error`` marks the cell as failed.

        ``metrics`` are rows of the metrics table. The same cell with the same settings uses the same run.
        """

    def log_artifact(self, path: Path, artifact_path: str | None = None) -> None:
        """Keep a file, or a folder with all it holds, with the study."""

    def log_report(self, path: Path) -> None:
        """Keep the report (its folder or its page) under ``report/``."""


class Tracker:
    """Where studies and fits are recorded; this one keeps nothing."""

    @contextmanager
    def study(
        self, name: str, params: Mapping[str, Any], tags: Mapping[str, str] | None = None
    ) -> Iterator[StudyRun]:
        """The parent run of a study; an unfinished run of the same name and params is taken up again.

        ``params`` is what decides the results (not paths, not worker counts): it identifies the study. The
        run ends as FINISHED, FAILED (an exception) or KILLED (an interrupt).
        """
        yield StudyRun()

    def log_day(
        self, day: str, table: str, metrics: Mapping[str, float], tags: Mapping[str, str] | None = None
    ) -> str | None:
        """Log a day of scores as one run, and return its id; None if nothing is tracked.

        The same day of the same table is the same run, whose metrics and tags then say how it stands now.
        ``tags`` are what may differ between two runs for a day: model version, input snapshot, verdict.
        """

    def register_fit(
        self,
        bundle: Path,
        name: str,
        *,
        n_answers: int,
        alias: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> RegisteredFit | None:
        """Register a fit's folder as a new version of model ``name``, or find the version that holds it.

        ``n_answers`` is the N that the fit was trained for, ``run_id`` the run that made it. The alias
        moves to this version; ``champion`` is refused here, see `open_versions`. None if nothing is tracked.
        Raises IntegrityError for a bundle with anything but safetensors and JSON.
        """


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as dotted keys; lists and empty mappings stay whole, as JSON."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value, default=str)
    return flat
