"""The stages that a number of response sets goes through, with the plan's rates."""

from __future__ import annotations

import math

from infra.simulation.assumptions import Assumptions
from infra.simulation.events import StageLoad
from sgpu.plan.cells import PlanCell, PlanJudge, PlanModel, PlanStudy
from sgpu.plan.estimate import estimate
from sgpu.plan.granted import Sizes
from sgpu.plan.rates import Rates
from sgpu.plan.work import HOUR, Work

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
