"""Tracking switched off: the same methods, and nothing behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sgpu.tracking.base import TableVersion


class NullStudyRun:
    """A parent run that is nowhere."""

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
    ) -> None:
        return None

    def log_artifact(self, path: Path, artifact_path: str | None = None) -> None:
        return None

    def log_report(self, path: Path) -> None:
        return None


class NullTracker:
    """A store that keeps nothing."""

    @contextmanager
    def study(
        self, name: str, params: Mapping[str, Any], tags: Mapping[str, str] | None = None
    ) -> Iterator[NullStudyRun]:
        yield NullStudyRun()

    def log_day(
        self, day: str, table: str, metrics: Mapping[str, float], tags: Mapping[str, str] | None = None
    ) -> None:
        return None

    def register_fit(
        self,
        bundle: Path,
        name: str,
        *,
        n_answers: int,
        alias: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> None:
        return None

    def promote(self, name: str, version: int) -> None:
        return None
