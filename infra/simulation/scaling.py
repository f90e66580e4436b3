"""A study of a given size on a given number of GPUs: its stages, time, cost, and what holds it up first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infra.simulation.events import HOUR, Cluster, Faults, StageLoad
from sgpu.plan.cells import PlanCell, PlanJudge, PlanModel, PlanStudy, Sizes, Work
from sgpu.plan.estimate import estimate
from sgpu.plan.rates import Positive, Rate, Rates, ShareRate
from sgpu.storage.parquet_files import THREADS
from sgpu.study.file import read_tree, validated
from sgpu.study.specs import Strict

VALUES = Path(__file__).with_name("assumptions.yaml")


class Assumptions(Strict):
    """Faults of a cluster, and the work that no GPU does; the values stand in assumptions.yaml."""

    speed_spread: Rate
    block_spread: Rate
    straggler_share: ShareRate
    straggler_factor: Positive
    hours_between_losses: Positive
    replace_seconds: Rate
    engine_block_rows: Positive
    light_block_rows: Positive
    ledger_blocks_per_s: Positive
    job_start_seconds: Rate
    checked_rows_per_s: Positive
    checked_row_bytes: Positive
    committed_files_per_s: Positive
    object_store_file_ms: Rate
    file_readers: Positive = Positive(
        value=THREADS, origin="given", note="files that the check reads at a time; the code's number"
    )
    bootstrap_row_us: Positive
    encoded_answers_per_s: Positive
    spectra_per_s: Positive
    fit_seconds: Rate
    head_memory_gib: Positive
    idle_seconds: Rate

    def named(self) -> Iterator[tuple[str, Rate]]:
        """Every number with its name."""
        for name in type(self).model_fields:
            yield name, getattr(self, name)


def load_assumptions() -> Assumptions:
    """Every number as assumptions.yaml has it; UsageError where that has others than it should."""
    return validated(Assumptions, read_tree(VALUES), f"assumptions in {VALUES.name}")


TEST_SHARE = 19_500 / 66_500  # of the paper's questions; they have the larger judge
SAMPLER = PlanModel(name="qwen2.5-vl-7b", parameters=8.29, image_rule="qwen2.5-vl", max_pixels=1280 * 28 * 28)
SMALL_JUDGE = PlanModel(name="llama-3.1-8b", parameters=8.03)
LARGE_JUDGE = PlanModel(name="llama-3.1-70b", parameters=70.6, gpus=4)


def reference_study(sets: int, gpus: int) -> PlanStudy:
    """One vision-language model on images of 640 x 480, 20 answers of 12 tokens, every stage of the paper.

    Where fewer GPUs are there than the large judge spans, the small one judges all questions.
    """
    test = round(sets * TEST_SHARE)
    sizes = Sizes(sets - test, test)
    judges = [PlanJudge("llm", SMALL_JUDGE, sizes.train, "train")]
    if gpus >= LARGE_JUDGE.gpus:
        judges.append(PlanJudge("llm", LARGE_JUDGE, sizes.test, "test"))
    else:
        judges = [PlanJudge("llm", SMALL_JUDGE, sizes.total, "train and test")]
    cell = PlanCell(
        model=SAMPLER, dataset="reference", requested=sizes, granted=sizes, n=20, question_tokens=12,
        wording_tokens=15.0, image=(640, 480), judges=tuple(judges),
    )  # fmt: skip
    return PlanStudy(name="reference", cells=(cell,), entailment="deberta", reads_hidden=True)


def stage_loads(sets: int, gpus: int, rates: Rates, assumed: Assumptions) -> tuple[StageLoad, ...]:
    """One load for each stage: all read what sampling wrote."""
    found = estimate(reference_study(sets, gpus), rates)
    return tuple(_load(work, rows_of(work, sets), assumed) for work in found)


def rows_of(work: Work, sets: int) -> int:
    """Response sets that a stage works on."""
    test = round(sets * TEST_SHARE)
    return {"train": sets - test, "test": test}.get(work.part, sets)


def _load(work: Work, rows: int, assumed: Assumptions) -> StageLoad:
    block = assumed.engine_block_rows if work.gpus >= 1 else assumed.light_block_rows
    blocks = math.ceil(rows / block.value)
    return StageLoad(
        name=f"{work.stage} {work.model}" if work.stage == "judge" else work.stage,
        rows=rows,
        blocks=blocks,
        block_seconds=work.hours * HOUR / work.gpus / blocks,
        gpus=work.gpus,
        start_seconds=work.start_minutes * 60,
        after=() if work.stage == "sample" else ("sample",),
    )


GPUS = (1, 8, 64, 512)
SETS = (10**6, 10**7, 10**8, 10**9)
# A stage is simulated up to so many blocks; what is left goes on at the rate that was seen.
SIMULATED_BLOCKS = 4_000
BLOCKS_PER_ACTOR = 8
GIB = 2**30
# Results are taken to lie in object storage, where the driver opens the file of each block once.
FILES = "driver: files in object storage"


@dataclass(frozen=True)
class Scaled:
    """One size on one cluster. ``parts`` are seconds of the wall clock by what they are spent on."""

    gpus: int
    sets: int
    wall_seconds: float
    paid_seconds: float  # of every GPU: it leaves when the driver alone works for long
    gpu_seconds: float
    parts: dict[str, float]
    driver_gib: float
    usd: float
    excess: str = ""  # what does not fit at all

    @property
    def busy(self) -> float:
        """The share of paid GPU time in which answers, votes and features were made."""
        return self.gpu_seconds / (self.paid_seconds * self.gpus)

    @property
    def sets_per_s(self) -> float:
        return self.sets / self.wall_seconds

    @property
    def bottlenecks(self) -> list[str]:
        """What does not fit, then what takes most of the time; working GPUs count stage by stage."""
        longest = sorted(self.parts, key=lambda part: -self.parts[part])
        return [self.excess, *longest] if self.excess else longest


def faults(assumed: Assumptions) -> Faults:
    """The faults of the event loop as the assumptions have them."""
    return Faults(
        speed_spread=assumed.speed_spread.value,
        block_spread=assumed.block_spread.value,
        straggler_share=assumed.straggler_share.value,
        straggler_factor=assumed.straggler_factor.value,
        losses_per_gpu_hour=1 / assumed.hours_between_losses.value,
        replace_seconds=assumed.replace_seconds.value,
        ledger_seconds=1 / assumed.ledger_blocks_per_s.value,
    )


def one_after_the_other(loads: Sequence[StageLoad]) -> list[StageLoad]:
    """The graph as the driver works it off: no stage begins before the one before it is done."""
    previous = [(), *((load.name,) for load in loads[:-1])]
    return [replace(load, after=after) for load, after in zip(loads, previous, strict=True)]


def scale(sets: int, gpus: int, rates: Rates, assumed: Assumptions, seed: int) -> Scaled:
    """Simulate one size; deterministic under the seed."""
    loads = one_after_the_other(stage_loads(sets, gpus, rates, assumed))
    runs = Cluster([_cut(load, gpus) for load in loads], gpus, faults(assumed), seed).run()
    parts: dict[str, float] = {}
    wall = gpu_seconds = 0.0
    for load, run in zip(loads, runs, strict=True):
        seconds = run.ended - run.began + (load.blocks - run.load.blocks) / run.blocks_per_s
        ideal = load.blocks * load.block_seconds * load.gpus / gpus
        start = min(load.start_seconds, seconds)
        _add(parts, f"GPUs: {load.name}", ideal)
        _add(parts, "engine starts", start)
        rest = max(0.0, seconds - ideal - start)
        # Where blocks end faster than the ledger can hear of them, the ledger sets the pace.
        waiting = min(rest, max(0.0, load.blocks / assumed.ledger_blocks_per_s.value - ideal))
        _add(parts, "one ledger", waiting)
        _add(parts, "stragglers, losses and tails", rest - waiting)
        gpu_seconds += ideal * gpus
        wall += seconds
    driver = dict(_driver_seconds(sets, loads, assumed))
    paid = wall + min(sum(driver.values()), assumed.idle_seconds.value)
    wall += sum(driver.values())
    parts |= driver
    usd = paid * gpus / HOUR * rates.gpu.usd_per_gpu_hour.value
    memory = sets * assumed.checked_row_bytes.value / GIB
    return Scaled(
        gpus, sets, wall, paid, gpu_seconds, parts, memory, usd,
        "memory of the driver" if memory > assumed.head_memory_gib.value else "",
    )  # fmt: skip


def _cut(load: StageLoad, gpus: int) -> StageLoad:
    most = max(SIMULATED_BLOCKS, int(BLOCKS_PER_ACTOR * gpus / load.gpus))
    return replace(load, blocks=min(load.blocks, most))


def _add(parts: dict[str, float], name: str, seconds: float) -> None:
    parts[name] = parts.get(name, 0.0) + seconds


def _driver_seconds(
    sets: int, loads: Sequence[StageLoad], assumed: Assumptions
) -> Iterator[tuple[str, float]]:
    """What one process does while the GPUs wait, as the code is: checks, commits, fits, measures."""
    checked = sum(load.rows for load in loads) / assumed.checked_rows_per_s.value
    committed = sum(load.blocks for load in loads) / assumed.committed_files_per_s.value
    yield "driver: checks and commits", checked + committed + len(loads) * assumed.job_start_seconds.value
    files = sum(load.blocks for load in loads)
    yield FILES, files * assumed.object_store_file_ms.value / 1e3 / assumed.file_readers.value
    yield "driver: fits", assumed.fit_seconds.value
    yield "driver: bootstrap", sets * TEST_SHARE * assumed.bootstrap_row_us.value / 1e6


def grid(rates: Rates, assumed: Assumptions, seed: int) -> list[Scaled]:
    """All sizes on all clusters."""
    return [scale(sets, gpus, rates, assumed, seed) for gpus in GPUS for sets in SETS]


def fault_costs(
    sets: int, gpus: int, rates: Rates, assumed: Assumptions, seed: int
) -> list[tuple[str, float, int]]:
    """Seconds of all stages and blocks done twice, under more and more faults; nothing is cut."""
    loads = one_after_the_other(stage_loads(sets, gpus, rates, assumed))
    full = faults(assumed)
    calm = replace(full, speed_spread=0, block_spread=0, straggler_share=0, losses_per_gpu_hour=0)
    cases = (
        ("no faults", calm),
        ("actors and blocks differ", replace(full, straggler_share=0, losses_per_gpu_hour=0)),
        ("and some blocks straggle", replace(full, losses_per_gpu_hour=0)),
        ("and nodes are lost", full),
        (
            "nodes are lost ten times as often",
            replace(full, losses_per_gpu_hour=10 * full.losses_per_gpu_hour),
        ),
    )
    found = []
    for title, case in cases:
        runs = Cluster(loads, gpus, case, seed).run()
        found.append((title, max(run.ended for run in runs), sum(run.redone for run in runs)))
    return found
