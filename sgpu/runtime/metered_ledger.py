"""What a ledger hears of every block, as metrics for Prometheus.

Ray's agent on each node exports the `METRICS` with the prefix `ray_`, and counters with the suffix `_total`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from sgpu.runtime.ledger import MAX_LONE_DEATHS, Advice, Ledger

Kind = Literal["counter", "gauge", "histogram"]
LABELS = ("stage", "model", "dataset")
TOKENS = "tokens"  # what the workers call them in their counts


@dataclass(frozen=True)
class MetricSpec:
    """One metric as it is declared to Ray."""

    name: str
    kind: Kind
    description: str
    labels: tuple[str, ...] = LABELS
    boundaries: tuple[float, ...] = ()


METRICS = (
    MetricSpec("sgpu_starting", "gauge", "1 until a worker takes the first block of a stage, then 0."),
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


class RayRecorder:
    """Metrics of this process through Ray; where no agent runs (a plain Ray wheel) they go nowhere."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter, Gauge, Histogram

        kinds = {"counter": (Counter, "inc"), "gauge": (Gauge, "set"), "histogram": (Histogram, "observe")}
        self._record: dict[str, Callable[..., None]] = {}
        for spec in METRICS:
            kind, report = kinds[spec.kind]
            bounds = {"boundaries": list(spec.boundaries)} if spec.boundaries else {}
            metric = kind(spec.name, spec.description, tag_keys=spec.labels, **bounds)
            self._record[spec.name] = getattr(metric, report)

    def add(self, name: str, value: float, **labels: str) -> None:
        """Increment a counter, set a gauge, or observe a value in a histogram."""
        self._record[name](value, tags=labels)


@cache
def _recorder_of_process() -> RayRecorder:
    return RayRecorder()


class MeteredLedger(Ledger):
    """The ledger of a stage that also reports what it hears; a metric never decides anything."""

    def __init__(
        self,
        labels: Mapping[str, str],
        max_lone_deaths: int = MAX_LONE_DEATHS,
        recorder: RayRecorder | None = None,
        living_nodes: Callable[[], Collection[str]] | None = None,
        is_proven: bool = False,
    ) -> None:
        super().__init__(max_lone_deaths, living_nodes=living_nodes, is_proven=is_proven)
        self._labels = {name: labels.get(name, "") for name in LABELS}
        self._recorder = recorder or _recorder_of_process()
        self._begun: dict[str, float] = {}
        self._recorder.add("sgpu_starting", 1.0, **self._labels)

    def begin(self, ids: Sequence[str], node: str = "") -> Advice:
        if self._first_begin is None:
            self._recorder.add("sgpu_starting", 0.0, **self._labels)
        self._begun[ids[0]] = time.monotonic()
        return super().begin(ids, node)

    def begin_alone(self, row_id: str, node: str = "") -> Advice:
        advice = super().begin_alone(row_id, node)
        if advice == "alone":
            self._add("sgpu_retries", 1)
        return advice

    def end(self, ids: Sequence[str], counts: Mapping[str, float], failed: int = 0) -> None:
        super().end(ids, counts, failed)
        self._add("sgpu_rows", len(ids))
        self._add("sgpu_quarantined", failed)
        self._add("sgpu_tokens", counts.get(TOKENS, 0.0))
        for unit in counts.keys() - {TOKENS}:
            self._add("sgpu_items", counts[unit], unit=unit)
        if (begun := self._begun.pop(ids[0], None)) is not None:
            self._add("sgpu_block_seconds", time.monotonic() - begun)

    def _add(self, name: str, value: float, **labels: str) -> None:
        if value > 0:  # Ray refuses to increment by nothing
            self._recorder.add(name, value, **self._labels, **labels)
