"""A whole plan: the work of a study, its pools and their schedule on several numbers of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from sgpu.errors import UsageError
from sgpu.plan.estimate import Work, estimate, runs_on_cpu
from sgpu.plan.rates import PREFIX, Rates, load_rates
from sgpu.runtime.runner import PoolRecord
from sgpu.runtime.schedule import Pool, Replay, replay, shelves
from sgpu.runtime.shelves import UNKNOWN_PACE, Pace
from sgpu.runtime.stage import Stage
from sgpu.stages.run import Run
from sgpu.study.benchmark import Cell, Study, load_study
from sgpu.study.data_specs import ResponsesSpec

COUNTS = (1, 2, 4, *range(8, 129, 8))  # of GPUs that are compared: parts of a node and whole nodes of eight
GOOD_USE = 0.8  # of the best buy


@dataclass(frozen=True)
class CostPlan:
    """A study with its work, and its schedule on the GPUs that were asked for; a CPU counts as one "GPU"."""

    study: Study
    rates: Rates
    on_cpu: bool
    work: list[Work]
    notes: list[str]
    pools: list[Pool]
    chosen: Replay

    @cached_property
    def offers(self) -> tuple[Replay, ...]:
        """The same study on all `COUNTS` of GPUs that its actors fit on; none on a CPU."""
        counts = () if self.on_cpu or not self.pools else COUNTS
        fewest = max((pool.gpus for pool in self.pools), default=0)
        return tuple(schedule(self.pools, count) for count in counts if count >= fewest)

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
    rates = load_rates(rates_file, overrides)
    study = load_study(study_file, [setting for setting in overrides if not setting.startswith(PREFIX)])
    work, notes = estimate(study, rates)
    pools, on_cpu = make_pools(work, rates.pools), runs_on_cpu(study)
    try:
        chosen = schedule(pools, 1 if on_cpu else gpus)
    except ValueError as error:
        raise UsageError(f"--gpus {gpus}: {error}; give more") from None
    return CostPlan(study, rates, on_cpu, work, notes, pools, chosen)


def follow_plan(run: Run) -> None:
    """Let a run size its pools by the plan of its study, and say what is still to come."""
    if not run.on_gpu() and any(isinstance(dataset, ResponsesSpec) for dataset in run.study.datasets):
        return  # to count the rows of a large file would take longer than the plan is worth
    work = [step for step in estimate(run.study, load_rates())[0] if step.hours]
    run.pace, site = planned_pace(run.study, work), run.site()
    played = schedule(make_pools(work), site.gpus if site else 1)
    share = played.wall * 60 / (sum(step.hours for step in work) or 1.0)
    for step in work:
        run.progress.expected[step.pool] = run.progress.expected.get(step.pool, 0.0) + step.hours * share


def planned_pace(study: Study, work: Sequence[Work] = ()) -> Callable[[Stage], Pace]:
    """Return how fast the plan of a study takes the actors of a stage to be.

    Without its ``work`` the study is estimated when a pace is first asked for.
    """

    @cache
    def paces() -> dict[tuple[str, Cell], Pace]:
        steps = [step for step in work or estimate(study, load_rates())[0] if step.hours]
        return {(step.pool, step.cell): Pace(step.row_minutes, step.start_minutes) for step in steps}

    def pace(stage: Stage) -> Pace:
        cell = Cell(stage.partition.value("model") or "", stage.partition.value("dataset") or "")
        return paces().get((stage.pool_name, cell), UNKNOWN_PACE)

    return pace


def make_pools(work: Sequence[Work], measured: Sequence[PoolRecord] = ()) -> list[Pool]:
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
        same = [run for run in measured if bool(run.gpus) == bool(gpus) and run.busy_seconds]
        runs = [run for run in same if f"{run.stage} {run.engine}" == group[0].pool]
        if rows := sum(run.rows for run in runs):
            # Seconds of one actor on GPUs, of the machine on a CPU.
            seconds = sum(run.busy_seconds / (1 if gpus else max(1, run.actors)) for run in runs) / rows
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
