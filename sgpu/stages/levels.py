"""The stages of all cells of a study, level by level, so that an engine starts once for each stage and model.

What a level reads is published before it begins. Within a level stages that share an engine are one pool; see
`sgpu.runtime.dataflow`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sgpu.runtime.stage import Stage
from sgpu.stages.embedding_study import plan_embedding_study, plan_wording
from sgpu.stages.encode import plan_encoding
from sgpu.stages.entail import built_from, plan_entailment
from sgpu.stages.hidden import plan_hidden_states
from sgpu.stages.judge import plan_judging, plan_second_judging
from sgpu.stages.run import Run
from sgpu.stages.sample import plan_sampling
from sgpu.study.benchmark import Cell

Plan = Callable[[Run, Cell], list[Stage]]


def levels_of(run: Run) -> list[list[Plan]]:
    """Return what is planned at each level, cell by cell. A cosine threshold is fitted to labels."""
    second: list[Plan] = [plan_judging, plan_second_judging, plan_encoding, plan_hidden_states]
    comparing: list[Plan] = [plan_entailment, plan_embedding_study]
    rest = [second, comparing] if built_from(run.study) == "encoder" else [[*second, *comparing]]
    return [[plan_sampling, plan_wording], *rest]


def run_levels(run: Run, cells: Sequence[Cell], check: Callable[[], None]) -> None:
    """Run what the levels of these cells lack; ``check`` is called between levels, and may raise.

    Raises what `Run.run_stages` raises.
    """
    for level in levels_of(run):
        run.run_stages([stage for plan in level for cell in cells for stage in plan(run, cell)])
        check()
