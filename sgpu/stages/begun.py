"""A table is finished in the dtype in which it was begun, also by a machine that would choose another."""

from __future__ import annotations

from dataclasses import replace

from sgpu.models import engine_dtypes, model_card
from sgpu.stages.run import Run
from sgpu.stages.stage import Stage
from sgpu.store import fingerprint


def as_begun(run: Run, stage: Stage, card: str) -> Stage:
    """The stage of a language model in the dtype in which its table was published or begun.

    The dtype is part of the fingerprint, as a model gives other answers in another one. This machine's
    choice, which ``stage`` has, counts for new tables. Expects the engine's settings at ``settings["model"]``
    and ``arguments["config"]``; ``card`` names the model. Servers choose for themselves.
    """
    if stage.settings.get("engine") == "openai":
        return stage
    device = run.study.resources.device
    choices = [_in_dtype(stage, dtype) for dtype in engine_dtypes(model_card(card), device)]
    keys = [fingerprint(choice.content) for choice in choices]
    table, partition = stage.table.name, stage.partition
    for is_it in (run.store.unchanged, run.store.begun):
        for choice, key in zip(choices, keys, strict=True):
            if is_it(table, partition, key):
                return choice
    return stage


def _in_dtype(stage: Stage, dtype: str) -> Stage:
    settings = {**stage.settings, "model": {**stage.settings["model"], "dtype": dtype}}
    arguments = {**stage.arguments, "config": {**stage.arguments["config"], "dtype": dtype}}
    if "settings_sha256" in arguments:  # that every row carries
        arguments["settings_sha256"] = fingerprint(settings)
    return replace(stage, settings=settings, arguments=arguments)
