"""What each stage asks Ray for, and how long it then takes on a given number of GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sgpu.plan.cells import PlanModel, PlanStudy
from sgpu.plan.rates import Rates
from sgpu.plan.work import Work, in_pipeline_order

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
    for one in in_pipeline_order(work):
        if one.hours:
            groups.setdefault((one.stage, one.model, one.gpus, one.on_cpu), []).append(one)
    models = _models(study)
    return [
        _on_cpu(key, group) if key[3] else _on_gpus(study, key, group, models.get(key[1]), rates, gpus)
        for key, group in groups.items()
    ]


def _models(study: PlanStudy) -> dict[str, PlanModel]:
    used = [cell.model for cell in study.cells if not cell.sampled_elsewhere]
    used += [judge.model for cell in study.cells for judge in cell.judges if judge.model]
    used += [study.entailment_model] if study.entailment_model else []
    return {model.name: model for model in used}


def _on_cpu(key: tuple[str, str, float, bool], group: Sequence[Work]) -> Placement:
    hours = sum(one.hours for one in group)
    start = sum(one.start_minutes for one in group) / 60
    return Placement(
        stage=key[0], model=key[1], engine="CPU", runs=len(group), actors=1, gpus=0.0, usable=0,
        on_cpu=True, hours=hours, start_hours=start, wall_hours=hours + start,
    )  # fmt: skip


def _on_gpus(
    study: PlanStudy, key: tuple[str, str, float, bool], group: Sequence[Work],
    model: PlanModel | None, rates: Rates, available: int,
) -> Placement:  # fmt: skip
    stage, name, gpus, _ = key
    hours, start = sum(one.hours for one in group), sum(one.start_minutes for one in group) / 60
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
