"""What a stage reports to Prometheus: counters of the ledger, which hears of every block, through Ray.

Ray's agent on each node exports them with the prefix `ray_`, and counters with the suffix `_total`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from sgpu.runtime.ledger import MAX_LONE_DEATHS, Advice, Ledger

Kind = Literal["counter", "histogram"]
LABELS = ("stage", "model", "dataset")
TOKENS = "tokens"  # what the workers call them in their counts


@dataclass(frozen=True)
class MetricSpec:
    """One metric as it is declared to Ray; ``exported`` is how Prometheus knows it."""

    name: str
    kind: Kind
    description: str
    labels: tuple[str, ...] = LABELS
    boundaries: tuple[float, ...] = ()

    @property
    def exported(self) -> tuple[str, ...]:
        if self.kind == "counter":
            return (f"ray_{self.name}_total",)
        return tuple(f"ray_{self.name}_{part}" for part in ("bucket", "sum", "count"))


METRICS = (
    MetricSpec("sgpu_rows", "counter", "Rows that a stage is done with, failed ones included."),
    MetricSpec("sgpu_tokens", "counter", "Tokens that were generated."),
    MetricSpec(
        "sgpu_items", "counter", "What else the stage counts: answers, votes, pairs.", (*LABELS, "unit")
    ),
    MetricSpec("sgpu_retries", "counter", "Rows that were tried again by themselves."),
    MetricSpec("sgpu_quarantined", "counter", "Rows that could not be processed."),
    MetricSpec(
        "sgpu_block_seconds",
        "histogram",
        "Seconds that an actor worked on one block. Blocks overlap: the sum is no time on the clock.",
        boundaries=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000),
    ),
)


class Recorder(Protocol):
    """Where values go."""

    def add(self, name: str, value: float, **labels: str) -> None:
        """Increment a counter, or observe a value in a histogram."""
        ...


class RayRecorder:
    """Metrics of this process through Ray; where no agent runs (a plain Ray wheel) they go nowhere."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter, Histogram

        self._metrics: dict[str, Any] = {}
        for spec in METRICS:
            if spec.kind == "counter":
                self._metrics[spec.name] = Counter(spec.name, spec.description, spec.labels)
            else:
                self._metrics[spec.name] = Histogram(
                    spec.name, spec.description, list(spec.boundaries), spec.labels
                )

    def add(self, name: str, value: float, **labels: str) -> None:
        metric = self._metrics[name]
        (metric.observe if hasattr(metric, "observe") else metric.inc)(value, tags=labels)


class MeteredLedger(Ledger):
    """The ledger of a stage that also reports what it hears; a metric never decides anything."""

    def __init__(
        self,
        labels: Mapping[str, str],
        max_lone_deaths: int = MAX_LONE_DEATHS,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(max_lone_deaths)
        self._labels = {name: labels.get(name, "") for name in LABELS}
        self._recorder = recorder or RayRecorder()
        self._begun: dict[str, float] = {}

    def begin(self, ids: Sequence[str]) -> Advice:
        self._begun[ids[0]] = time.monotonic()
        return super().begin(ids)

    def begin_alone(self, row_id: str) -> Advice:
        advice = super().begin_alone(row_id)
        if advice == "alone":
            self._add("sgpu_retries", 1)
        return advice

    def end(self, ids: Sequence[str], counts: Mapping[str, float], failed: int = 0) -> None:
        super().end(ids, counts, failed)
        self._add("sgpu_rows", len(ids))
        self._add("sgpu_quarantined", failed)
        for unit, value in counts.items():
            if unit == TOKENS:
                self._add("sgpu_tokens", value)
            else:
                self._add("sgpu_items", value, unit=unit)
        if (begun := self._begun.pop(ids[0], None)) is not None:
            self._add("sgpu_block_seconds", time.monotonic() - begun)

    def _add(self, name: str, value: float, **labels: str) -> None:
        if value > 0:  # Ray refuses to increment by nothing
            self._recorder.add(name, value, **self._labels, **labels)
