"""What one stage does in one cell, in calls, tokens and hours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

HOUR = 3600.0
STAGES = ("sample", "judge", "encode", "entail", "hidden")


@dataclass(frozen=True, kw_only=True)
class Work:
    """``calls`` are prompts, votes, pairs or texts, as the stage counts them.

    ``hours`` are of GPUs, or of the machine where ``on_cpu``. ``rates`` names what they rest on, ``bound``
    what holds the stage up. ``gpus`` and ``start_minutes`` are of one actor.
    """

    stage: str
    model: str
    dataset: str
    answered_by: str
    calls: float
    part: str = ""  # which questions, where it is not all of them
    hours: float = 0.0
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    before_distinct: float = 0.0  # calls if equal answers were not sent once; 0 where that does not apply
    on_cpu: bool = False
    gpus: float = 0.0
    start_minutes: float = 0.0
    bound: str = ""
    rates: tuple[str, ...] = ()

    def lasting(
        self, seconds: float, bound: str, rates: tuple[str, ...], *, gpus: float = 0.0, start_minutes: float
    ) -> Work:
        """The same work with its time; on the CPU if it takes no GPU."""
        return replace(
            self, hours=seconds / HOUR, bound=bound, rates=rates, gpus=gpus, on_cpu=not gpus,
            start_minutes=start_minutes,
        )  # fmt: skip


def in_pipeline_order(work: Iterable[Work]) -> list[Work]:
    """Stage by stage, cells in their own order."""
    return sorted(work, key=lambda one: STAGES.index(one.stage))


def slowest(**seconds: float) -> tuple[str, float]:
    """Which of several bounds that work side by side holds, and its seconds."""
    bound = max(seconds, key=lambda name: seconds[name])
    return bound.replace("_", " "), seconds[bound]
