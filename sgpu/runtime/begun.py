"""A table is finished in the dtype in which it was begun, also by a machine that would choose another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sgpu.models.machine import cpu_dtype, on_cpu
from sgpu.runtime.run import Run
from sgpu.runtime.stage import Stage
from sgpu.storage.store import fingerprint
from sgpu.study.models import engine_dtypes, model_card

ENCODER_DTYPES = ("bfloat16", "float32")


def as_begun(run: Run, stage: Stage, card: str) -> Stage:
    """The stage of a language model in the dtype in which its table was published or begun.

    The dtype is part of the fingerprint, as a model gives other answers in another one. This machine's
    choice, which ``stage`` has, counts for new tables. Expects the engine's settings at ``settings["model"]``
    and ``arguments["config"]``; ``card`` names the model. Servers choose for themselves.
    """
    return begun_of(run, engine_choices(run, stage, card))


def engine_choices(run: Run, stage: Stage, card: str) -> list[Stage]:
    """The stage in each dtype in which a machine may have begun it, this machine's first."""
    if stage.settings.get("engine") == "openai":
        return [stage]
    device = run.study.resources.device
    return [_engine_in_dtype(stage, dtype) for dtype in engine_dtypes(model_card(card), device)]


def encoder_dtypes(run: Run, dtype: str) -> tuple[str, ...]:
    """What an encoder or classifier may have begun in, this machine's choice first; ``dtype`` if it is one.

    On a CPU the driver chooses for all workers. A GPU chooses for itself, as "auto"; so did CPUs once, and
    their tables stay.
    """
    if dtype != "auto":
        return (dtype,)
    if not on_cpu(run.study.resources.device):
        return ("auto", *ENCODER_DTYPES)
    return (*sorted(ENCODER_DTYPES, key=lambda one: one != cpu_dtype()), "auto")


def begun_of(run: Run, choices: Sequence[Stage]) -> Stage:
    """Of stages that make the same table, the one that was published, else begun, else the first."""
    keys = [fingerprint(choice.content) for choice in choices]
    for is_it in (run.store.unchanged, run.store.begun):
        for choice, key in zip(choices, keys, strict=True):
            if is_it(choice.table.name, choice.partition, key):
                return choice
    return choices[0]


def in_dtype(stage: Stage, dtype: str, settings: str = "", arguments: str = "") -> Stage:
    """The stage in a dtype, which stands in its settings and arguments, or in a part of them by name."""
    return replace(
        stage,
        settings=_with_dtype(stage.settings, settings, dtype),
        arguments=_with_dtype(stage.arguments, arguments, dtype),
    )


def _with_dtype(values: Mapping[str, Any], part: str, dtype: str) -> dict[str, Any]:
    return {**values, part: {**values[part], "dtype": dtype}} if part else {**values, "dtype": dtype}


def _engine_in_dtype(stage: Stage, dtype: str) -> Stage:
    made = in_dtype(stage, dtype, settings="model", arguments="config")
    if "settings_sha256" not in made.arguments:  # that every row carries
        return made
    return replace(made, arguments={**made.arguments, "settings_sha256": fingerprint(made.settings)})
