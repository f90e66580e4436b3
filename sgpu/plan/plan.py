"""A whole plan: the work of a study, its pools and their schedule on several numbers of GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sgpu.errors import UsageError
from sgpu.plan.cells import PlanStudy, Work
from sgpu.plan.estimate import SERVER, estimate
from sgpu.plan.from_study import plan_study
from sgpu.plan.rates import PREFIX, MeasuredPool, Rates, load_rates
from sgpu.runtime.schedule import Pool, Replay, replay, shelves
from sgpu.runtime.shelves import UNKNOWN_PACE, Pace
from sgpu.runtime.stage import Stage
from sgpu.stages.run import Run
from sgpu.study.benchmark import load_study

COUNTS = (1, 2, 4, *range(8, 129, 8))  # of GPUs that are compared: parts of a node and whole nodes of eight
GOOD_USE = 0.8  # of the best buy


@dataclass(frozen=True)
class CostPlan:
    """A study with its work, and its schedule on the GPUs that were asked for; a CPU counts as one "GPU"."""

    study: PlanStudy
    rates: Rates
    work: tuple[Work, ...]
    pools: tuple[Pool, ...]
    chosen: Replay

    @property
    def work_hours(self) -> float:
        """GPU-hours of work, or hours of the machine on a CPU, without starts."""
        return sum(pool.work * pool.gpus for pool in self.pools) / 60

    def usd(self, offer: Replay) -> float:
        return 0.0 if self.study.on_cpu else offer.held_hours * self.rates.gpu.usd_per_gpu_hour

    @cached_property
    def offers(self) -> tuple[Replay, ...]:
        """The same study on all `COUNTS` of GPUs that its actors fit on; none on a CPU."""
        if self.study.on_cpu or not self.pools:
            return ()
        fewest = max(pool.gpus for pool in self.pools)
        return tuple(schedule(self.pools, count) for count in COUNTS if count >= fewest)

    @property
    def best_buy(self) -> Replay | None:
        """The most GPUs with a use of at least `GOOD_USE`; the number with the best use if none has it.

        More GPUs end sooner, but more than a fifth of what is paid for them goes into starts and idle GPUs.
        """
        good = [offer for offer in self.offers if offer.use >= GOOD_USE]
        return good[-1] if good else max(self.offers, key=lambda offer: offer.use, default=None)


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
    """Plan a study that is already known. Raises UsageError if an actor does not fit on the GPUs."""
    work = estimate(study, rates)
    pools = make_pools(work, rates.pools)
    try:
        chosen = schedule(pools, 1 if study.on_cpu else gpus)
    except ValueError as error:
        raise UsageError(f"--gpus {gpus}: {error}; give more") from None
    return CostPlan(study, rates, tuple(work), tuple(pools), chosen)


def follow_plan(run: Run) -> None:
    """Let a run size its pools by the plan of its study, and say what is still to come."""
    rates = load_rates()
    study = plan_study(run.study, rates)
    work = [step for step in estimate(study, rates) if step.hours]
    paces = {
        (step.pool, step.answered_by, step.dataset): Pace(step.row_minutes, step.start_minutes)
        for step in work
    }

    def pace(stage: Stage) -> Pace:
        cell = stage.partition
        return paces.get((stage.pool_name, cell.value("model"), cell.value("dataset")), UNKNOWN_PACE)

    run.pace, site = pace, run.site()
    played = schedule(make_pools(work), site.gpus if site else 1)
    share = played.wall * 60 / (sum(step.hours for step in work) or 1.0)
    for step in work:
        run.progress.expected[step.pool] = run.progress.expected.get(step.pool, 0.0) + step.hours * share


def make_pools(work: Sequence[Work], measured: Sequence[MeasuredPool] = ()) -> list[Pool]:
    """Return the pools of all work that takes time; an actor on a CPU takes the machine, counted as 1 GPU.

    A pool that a run has ``measured`` on the same kind of device takes as long as there. How it is shared
    among its cells stays as estimated.
    """
    groups: dict[tuple[str, str, float], list[Work]] = {}
    for step in work:
        if step.hours:
            groups.setdefault((step.stage, step.engine, step.gpus), []).append(step)
    pools = []
    for (stage, engine, gpus), group in groups.items():
        pool = Pool(stage, engine, gpus or 1.0, group[0].start_minutes, tuple(_blocks(group)))
        runs = [run for run in measured if run.name == group[0].pool and bool(run.gpus) == bool(gpus)]
        if runs:
            seconds = sum(run.row_seconds * run.rows for run in runs) / sum(run.rows for run in runs)
            pool = pool.scale(seconds / 60 * sum(step.rows for step in group) / pool.work)
        if starts := sum(run.starts for run in runs):
            pool = replace(pool, start=sum(run.start_seconds for run in runs) / starts / 60)
        pools.append(pool)
    return pools


def _blocks(group: Sequence[Work]) -> Iterator[float]:
    """Yield the minutes of each block, cell by cell."""
    for work in group:
        for first in range(0, work.rows, work.block_rows):
            yield work.row_minutes * min(work.block_rows, work.rows - first)


def schedule(pools: Sequence[Pool], gpus: int) -> Replay:
    """Return a replay of the shelves on so many GPUs. Raises what `shelves` raises."""
    return replay(shelves(pools, gpus), gpus)


@dataclass(frozen=True)
class ServedModel:
    """What is asked of a model of a server; ``usd`` is None without a price."""

    name: str
    calls: float
    tokens_in: float
    tokens_out: float
    usd: float | None


def served(plan: CostPlan) -> list[ServedModel]:
    """Return the models of servers that the study asks."""
    found = []
    for model in dict.fromkeys(cell.model for cell in plan.study.cells):
        own = [work for work in plan.work if (work.engine, work.limit) == (model.name, SERVER)]
        read, written = sum(work.tokens_in for work in own), sum(work.tokens_out for work in own)
        usd = (read * model.price[0] + written * model.price[1]) / 1e6 if model.price else None
        found += [ServedModel(model.name, sum(work.calls for work in own), read, written, usd)] if own else []
    return found


def list_oversized(plan: CostPlan) -> list[str]:
    """Return which models do not fit into the memory of their GPUs, and what to do."""
    study, gpu = plan.study, plan.rates.gpu
    models = [cell.model for cell in study.cells]
    models += [judge.model for cell in study.cells for judge in cell.judges if judge.model]
    models += [study.entailment_model] if study.entailment_model else []
    memory = {model.name: model.memory_gib for model in models}
    return [
        f"{pool.name}: {memory[pool.engine] / pool.gpus:.0f} GiB of weights a GPU do not fit into "
        f"{gpu.memory_gib:g} GiB: raise tensor_parallel_size of the card."
        for pool in plan.pools
        if not study.on_cpu and memory.get(pool.engine, 0.0) > pool.gpus * gpu.memory_gib * gpu.memory_share
    ]
