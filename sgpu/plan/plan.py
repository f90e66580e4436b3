"""A whole plan: cells, work, placement and totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sgpu.errors import UsageError
from sgpu.plan.cells import SAMPLE_OF_TEST, PlanStudy
from sgpu.plan.estimate import SERVER, estimate
from sgpu.plan.from_study import plan_study
from sgpu.plan.placement import Placement, place
from sgpu.plan.rates import PREFIX, Rates, load_rates
from sgpu.plan.work import Work
from sgpu.study.benchmark import load_study

# Sampling and the study's own judges: what the answers and labels of a benchmark cost.
CORE_STAGES = ("sample", "judge")


@dataclass(frozen=True)
class Plan:
    """``scenarios`` are the GPU-hours of answers and labels under three assumptions about repeated text."""

    study: PlanStudy
    rates: Rates
    gpus: int
    work: tuple[Work, ...]
    placements: tuple[Placement, ...]
    scenarios: tuple[tuple[str, float], ...]

    @property
    def gpu_hours(self) -> float:
        return sum(work.hours for work in self.work if not work.on_cpu)

    @property
    def start_gpu_hours(self) -> float:
        return sum(placed.start_hours for placed in self.placements if not placed.on_cpu)

    @property
    def cpu_hours(self) -> float:
        """Hours of the machine, starts included, for what runs on a CPU."""
        return sum(placed.wall_hours for placed in self.placements if placed.on_cpu)

    @property
    def wall_hours(self) -> float:
        return sum(placed.wall_hours for placed in self.placements)

    @property
    def usd(self) -> float:
        return (self.gpu_hours + self.start_gpu_hours) * self.rates.gpu.usd_per_gpu_hour.value


def served(plan: Plan) -> list[tuple[str, float, float, float | None]]:
    """Of each server's model: its name, the tokens that it reads and writes, and their price in USD."""
    rows = []
    for model in dict.fromkeys(cell.model.name for cell in plan.study.cells):
        price = next(cell.model.price for cell in plan.study.cells if cell.model.name == model)
        own = [work for work in plan.work if (work.model, work.bound) == (model, SERVER)]
        read, written = sum(work.tokens_in for work in own), sum(work.tokens_out for work in own)
        if own:
            usd = (read * price[0] + written * price[1]) / 1e6 if price else None
            rows.append((model, read, written, usd))
    return rows


def make_plan(
    study_file: Path, overrides: Sequence[str] = (), rates_file: Path | None = None, gpus: int = 8
) -> Plan:
    """Plan a study from its file; overrides that begin with ``rates.`` change rates, others the study.

    Raises UsageError for a study, a rates file or a number of GPUs that cannot be used.
    """
    if gpus < 1:
        raise UsageError(f"--gpus {gpus}: give 1 or more")
    own = [override for override in overrides if override.startswith(PREFIX)]
    rates = load_rates(rates_file, own)
    study = load_study(study_file, [override for override in overrides if override not in own])
    return plan_of(plan_study(study, rates), rates, gpus)


def plan_of(study: PlanStudy, rates: Rates, gpus: int) -> Plan:
    """The plan of a study that is known already."""
    work = estimate(study, rates)
    placements = place(study, work, rates, gpus)
    return Plan(study, rates, gpus, tuple(work), tuple(placements), scenarios(study, rates))


def scenarios(study: PlanStudy, rates: Rates) -> tuple[tuple[str, float], ...]:
    """GPU-hours of sampling and judging under three assumptions about repeated text, the last the plan's."""
    share, hits = rates.judge.distinct_share.value, rates.judge.prefix_hits.value
    steps = (
        ("every answer judged", 1.0, 0.0),
        (f"equal answers judged once (distinct share {share:g})", share, 0.0),
        (f"and {hits:.0%} of judge tokens from the prefix cache", share, hits),
    )
    found = []
    for title, distinct, cached in steps:
        changed = rates.changed({"judge.distinct_share": distinct, "judge.prefix_hits": cached})
        found.append((title, core_gpu_hours(estimate(study, changed))))
    return tuple(found)


def core_gpu_hours(work: Sequence[Work]) -> float:
    """GPU-hours of sampling and of the study's own judges."""
    return sum(
        one.hours
        for one in work
        if one.stage in CORE_STAGES and not one.on_cpu and one.part != SAMPLE_OF_TEST
    )
