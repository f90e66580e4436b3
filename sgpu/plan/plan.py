"""A whole plan: cells, work, placement and totals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sgpu.errors import UsageError
from sgpu.plan.cells import SAMPLE_OF_TEST, PlanModel, PlanStudy, Work, in_pipeline_order
from sgpu.plan.estimate import SERVER, estimate
from sgpu.plan.from_study import plan_study
from sgpu.plan.rates import PREFIX, Rates, load_rates
from sgpu.study.benchmark import load_study

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One stage with one model over all its cells, which run one after the other.

    ``gpus`` are of one actor, which is its tensor parallel size for an engine. ``usable`` is how many GPUs
    its actors occupy of those there are; 0 where not even one actor fits, or on a CPU.
    """

    stage: str
    model: str
    engine: str
    runs: int
    actors: int
    gpus: float
    usable: int
    on_cpu: bool
    hours: float
    start_hours: float  # GPU-hours that engines need to start; hours of the machine on a CPU
    wall_hours: float
    weights_gib: float = 0.0  # of one GPU
    cache_tokens: int | None = None  # room for keys and values in one actor; None where not known
    problem: str = ""


def place(study: PlanStudy, work: Sequence[Work], rates: Rates, gpus: int) -> list[Placement]:
    """One placement for each stage and model that takes time, in the order of the pipeline."""
    groups: dict[tuple[str, str, float, bool], list[Work]] = {}
    for step in in_pipeline_order(work):
        if step.hours:
            groups.setdefault((step.stage, step.model, step.gpus, step.on_cpu), []).append(step)
    models = _models(study)
    return [
        _on_cpu(group) if group[0].on_cpu else _on_gpus(study, group, models.get(name), rates, gpus)
        for (_, name, _, _), group in groups.items()
    ]


def _models(study: PlanStudy) -> dict[str, PlanModel]:
    used = [cell.model for cell in study.cells if not cell.sampled_elsewhere]
    used += [judge.model for cell in study.cells for judge in cell.judges if judge.model]
    used += [study.entailment_model] if study.entailment_model else []
    return {model.name: model for model in used}


def _on_cpu(group: Sequence[Work]) -> Placement:
    hours, start = sum(step.hours for step in group), sum(step.start_minutes for step in group) / 60
    return Placement(
        stage=group[0].stage, model=group[0].model, engine="CPU", runs=len(group), actors=1, gpus=0.0,
        usable=0, on_cpu=True, hours=hours, start_hours=start, wall_hours=hours + start,
    )  # fmt: skip


def _on_gpus(
    study: PlanStudy, group: Sequence[Work], model: PlanModel | None, rates: Rates, available: int
) -> Placement:
    stage, name, gpus = group[0].stage, group[0].model, group[0].gpus
    hours, start = sum(step.hours for step in group), sum(step.start_minutes for step in group) / 60
    actors = study.actors.get(stage, 1)
    # Actors of a part of a GPU share its speed, so that one of them alone has all of it.
    usable = math.ceil(min(actors, int(available // gpus)) * gpus)
    weights = model.memory_gib / gpus if model and gpus >= 1 else 0.0
    room = rates.gpu.memory_gib.value * rates.gpu.memory_share.value - weights
    problem = ""
    if usable == 0:
        problem = f"one actor needs {gpus:g} GPUs, there are {available}: give more with --gpus"
    elif room <= 0:
        problem = (
            f"{weights:.0f} GiB of weights a GPU do not fit into {rates.gpu.memory_gib.value:g} GiB: "
            "raise tensor_parallel_size of the card"
        )
    elif gpus >= 1 and usable + gpus <= available:
        problem = f"uses {usable} of {available} GPUs; more actors in `resources` use the others"
    per_token = model.kv_bytes_per_token if model and stage != "hidden" else 0
    cached = int(room * gpus * GIB / per_token) if per_token else None
    return Placement(
        stage=stage, model=name, engine=_engine(stage, model), runs=len(group), actors=actors, gpus=gpus,
        usable=usable, on_cpu=False, hours=hours, start_hours=start * usable,
        wall_hours=hours / usable + start if usable else 0.0, weights_gib=weights,
        cache_tokens=cached if room > 0 else None, problem=problem,
    )  # fmt: skip


def _engine(stage: str, model: PlanModel | None) -> str:
    if model is None:
        return "encoder" if stage == "encode" else "classifier"
    return "transformers" if stage == "hidden" else model.engine


# Sampling and the study's own judges: what the answers and labels of a benchmark cost.
CORE_STAGES = ("sample", "judge")


@dataclass(frozen=True)
class CostPlan:
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


def served(plan: CostPlan) -> list[tuple[str, float, float, float | None]]:
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
) -> CostPlan:
    """Plan a study from its file; overrides that begin with ``rates.`` change rates, others the study.

    Raises UsageError for a study, a rates file or a number of GPUs that cannot be used.
    """
    if gpus < 1:
        raise UsageError(f"--gpus {gpus}: give 1 or more")
    own = [override for override in overrides if override.startswith(PREFIX)]
    rates = load_rates(rates_file, own)
    study = load_study(study_file, [override for override in overrides if override not in own])
    return plan_of(plan_study(study, rates), rates, gpus)


def plan_of(study: PlanStudy, rates: Rates, gpus: int) -> CostPlan:
    """The plan of a study that is known already."""
    work = estimate(study, rates)
    placements = place(study, work, rates, gpus)
    return CostPlan(study, rates, gpus, tuple(work), tuple(placements), scenarios(study, rates))


def scenarios(study: PlanStudy, rates: Rates) -> tuple[tuple[str, float], ...]:
    """GPU-hours of sampling and judging under three assumptions about repeated text, the last the plan's."""
    share, hits = rates.judge.distinct_share.value, rates.judge.prefix_hits.value
    steps = (
        ("every answer judged", 1.0, 0.0),
        (f"equal answers judged once (distinct share {share:g})", share, 0.0),
        (f"and {hits:.0%} of judge tokens from the prefix cache", share, hits),
    )
    rows = []
    for title, distinct, cached in steps:
        changed = rates.changed({"judge.distinct_share": distinct, "judge.prefix_hits": cached})
        rows.append((title, core_gpu_hours(estimate(study, changed))))
    return tuple(rows)


def core_gpu_hours(work: Sequence[Work]) -> float:
    """GPU-hours of sampling and of the study's own judges."""
    return sum(
        step.hours
        for step in work
        if step.stage in CORE_STAGES and not step.on_cpu and step.part != SAMPLE_OF_TEST
    )
