"""Sampling stage: N answers of one model to every question of one data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.engines.base import ENGINES, NO_ANSWER, EngineConfig, Generation, Prompt, Sampling
from sgpu.runtime.begun import as_begun
from sgpu.runtime.run import Run, as_settings
from sgpu.runtime.stage import Outcome, Stage
from sgpu.runtime.worker import failed_row
from sgpu.seeds import derived_seed
from sgpu.stages.decode import image_preparation
from sgpu.stages.servers import check_server, terms_of
from sgpu.storage.store import Partition, fingerprint
from sgpu.storage.tables import RESPONSES
from sgpu.study.benchmark import Cell
from sgpu.study.models import card_of, engine_config, served_config, work_before_first_use
from sgpu.study.specs import PACE, ModelSpec

if TYPE_CHECKING:
    from sgpu.engines.chat_calls import Purse

VERSION = 2


class SampleWorker:
    """Holds one engine; turns a batch of questions into a batch of response sets."""

    def __init__(
        self,
        engine: str,
        config: dict[str, Any],
        sampling: dict[str, Any],
        prompt: str,
        system_prompt: str | None,
        seed_parts: list[str],
        settings_sha256: str,
        purse: Purse | None = None,
    ) -> None:
        paid = {"purse": purse} if purse is not None else {}
        self._engine = ENGINES.get(engine)(EngineConfig(**config), **paid)
        self._sampling = Sampling(**{**sampling, "stop": tuple(sampling["stop"])})
        self._template, self._system = prompt, system_prompt
        self._seed_parts, self._settings_sha256 = seed_parts, settings_sha256

    def __call__(self, batch: pa.Table) -> pa.Table:
        rows = batch.to_pylist()
        failed = [row for row in rows if row.get("status", "ok") != "ok"]
        asked = [row for row in rows if row.get("status", "ok") == "ok"]
        parts = [
            failed_row(RESPONSES.schema, row["question_id"], row["error"], row["status"]) for row in failed
        ]
        return pa.concat_tables([*parts, self._answers(asked)])

    def _answers(self, rows: list[dict[str, Any]]) -> pa.Table:
        if not rows:
            return RESPONSES.schema.empty_table()
        prompts = [
            question_prompt(self._template, self._system, row["question"], row["image"], self._seed(row))
            for row in rows
        ]
        generations = self._engine.sample(prompts, self._sampling)
        return pa.Table.from_pylist(
            [
                response_row(row["question_id"], prompt.seed, generation, self._engine.name)
                | {"settings_sha256": self._settings_sha256}
                for row, prompt, generation in zip(rows, prompts, generations, strict=True)
            ],
            schema=RESPONSES.schema,
        )

    def counts(self, output: pa.Table) -> Mapping[str, float]:
        tokens = pc.sum(pc.list_flatten(output["n_tokens"])).as_py()
        return {"tokens": float(tokens or 0)}

    def _seed(self, row: dict[str, Any]) -> int:
        # The seed hangs on the question alone, so a resume and the order of batches change nothing.
        return derived_seed(*self._seed_parts, row["question_id"])


def question_prompt(
    template: str, system_prompt: str | None, question: str, image: bytes | None, seed: int
) -> Prompt:
    """What a model is asked; hidden states are those of exactly this prompt."""
    system = [("system", system_prompt)] if system_prompt is not None else []
    return Prompt((*system, ("user", template.replace("{question}", question))), seed, image)


def response_row(question_id: str, seed: int, generation: Generation, engine: str) -> dict[str, Any]:
    """One row of the responses table; an answer that the engine withheld is null, not an empty text."""
    answers = generation.answers
    return {
        "question_id": question_id,
        "status": "ok",
        "error": None,
        "prompt_sha256": generation.prompt_sha256,
        "answers": [None if answer.finish_reason in NO_ANSWER else answer.text for answer in answers],
        "raw_answers": [answer.raw_text for answer in answers],
        "token_ids": [list(answer.token_ids) for answer in answers],
        "token_logprobs": [list(answer.token_logprobs) for answer in answers],
        "n_tokens": [answer.n_tokens for answer in answers],
        "finish_reasons": [answer.finish_reason for answer in answers],
        "seed": seed,
        "engine": engine,
    }


def sample(run: Run, cell: Cell) -> Outcome:
    """Sample the cell's answers into the responses table."""
    study, spec = run.study, run.study.model(cell.model)
    engine, config = engine_of(run, spec)
    sampling = as_settings(study.sampling_of(cell.dataset))
    prompt = sampling.pop("prompt")
    source = run.store.require("questions", Partition.of(dataset=cell.dataset))
    preparation, block_rows = image_preparation(run, cell, source)
    settings = {
        "engine": engine,
        "model": _described(spec, config),
        "sampling": sampling,
        "prompt": prompt,
        "system_prompt": spec.system_prompt,
        "seed": study.seed,
    }
    if preparation is not None:
        settings["images"] = dict(preparation.arguments)
    together = study.resources.sample_block_rows or (spec.options.concurrency if spec.options else None)
    resources = run.engine_resources(engine, study.resources.samplers, together, config.tensor_parallel_size)
    if block_rows:
        resources = replace(resources, block_rows=min(block_rows, resources.block_rows))
    stage = Stage(
        name="sample",
        version=VERSION,
        table=RESPONSES,
        partition=Partition.of(model=cell.model, dataset=cell.dataset),
        source=source,
        columns=("question_id", "question", "image"),
        worker="sgpu.stages.sample:SampleWorker",
        arguments={
            "engine": engine,
            "config": asdict(config),
            "sampling": sampling,
            "prompt": prompt,
            "system_prompt": spec.system_prompt,
            "seed_parts": [str(study.seed), cell.model, cell.dataset],
            "settings_sha256": fingerprint(settings),
        },
        settings=settings,
        resources=resources,
        preparation=preparation,
        terms=terms_of(run.study, spec) if engine == "openai" else None,
        check=lambda: check_server(run, spec),
    )
    return run.run_stage(as_begun(run, stage, spec.card_name))


def engine_of(run: Run, spec: ModelSpec) -> tuple[str, EngineConfig]:
    """The engine that serves a model in this run, and how it is built."""
    card = card_of(spec)
    engine = spec.engine or card.engine
    if engine == "openai":
        return engine, served_config(spec, run.study.resources.device)
    if work := work_before_first_use(card):
        run.progress.say(f"{card.name}: {work}")
    config = engine_config(card, device=run.study.resources.device, say=run.progress.say)
    changes = {
        key: value
        for key in ("base_url", "api_key_env", "requests_per_minute", "revision")
        if (value := getattr(spec, key)) is not None
    }
    return engine, EngineConfig(**{**asdict(config), **changes})


def _described(spec: ModelSpec, config: EngineConfig) -> dict[str, Any]:
    """The part of a stage's settings that names its model.

    The path of a converted checkpoint differs between machines; its card and revision do not. A server's pace
    changes no answer.
    """
    options = {name: value for name, value in config.options.items() if name not in PACE}
    return {**asdict(config), "model": spec.model or card_of(spec).source, "options": options}
