"""Sampling stage: N answers of one model to every question of one data set.

Each server of a study is asked, before any work, whether it, its key and its model are there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.engines.base import ENGINES, NO_ANSWER, Engine, EngineConfig, Generation, Prompt, Sampling
from sgpu.engines.costs import CallCosts, CostsClient, Terms
from sgpu.errors import PromptError
from sgpu.hashing import SAMPLING_SEED_BITS, derived_seed
from sgpu.runtime.ledger import ask
from sgpu.runtime.session import named_cluster
from sgpu.runtime.stage import Preparation, Resources, Shared, Stage, failed_row, hold
from sgpu.stages.actors import count_questions, engine_actors
from sgpu.stages.decode import image_preparation
from sgpu.stages.run import Run, as_settings
from sgpu.storage.store import Published, fingerprint
from sgpu.storage.tables import RESPONSES, Table
from sgpu.study.benchmark import Cell, Study
from sgpu.study.models import (
    MODEL_PLUGINS,
    card_of,
    engine_config,
    engine_name,
    served_config,
    work_before_first_use,
)
from sgpu.study.specs import PACE, ActorStage, BudgetSpec, ModelSpec

if TYPE_CHECKING:
    from sgpu.engines.chat_calls import TokenAccount


def check_servers(run: Run) -> None:
    """Ask the servers of all cells whose answers are not there yet; see `check_server`."""
    for model in dict.fromkeys(cell.model for cell in run.study.cells() if _is_open(run, cell)):
        check_server(run, run.study.model(model))


def terms_of(study: Study, spec: ModelSpec) -> Terms:
    """Return how the calls of a model's server are paid in this study."""
    price = (spec.price.input, spec.price.output) if spec.price else (0.0, 0.0)
    budget = study.budget or BudgetSpec()
    return Terms(spec.name, price, budget.tokens, budget.usd)


def account_of(run: Run, spec: ModelSpec) -> Shared | None:
    """Return the account that all workers pay a model's server from; None for a model without a server."""
    if engine_name(spec) != "openai":
        return None
    return Shared("account", CallCosts, (run.root, terms_of(run.study, spec)), CostsClient)


def check_server(run: Run, spec: ModelSpec) -> None:
    """Raise UsageError if a model's server does not answer, refuses the key or does not know the model."""
    if engine_name(spec) != "openai" or spec.name in run.checked_servers:
        return
    if named_cluster(run.address) and spec.api_key_env and spec.api_key_env not in os.environ:
        return  # the nodes that ask may have the key
    from sgpu.engines.openai import OpenAIEngine

    # A check may cost a token.
    costs = CallCosts(run.root, terms_of(run.study, spec))
    engine = OpenAIEngine(served_config(spec), account=CostsClient(partial(ask, costs)))
    try:
        engine.check()
    finally:
        engine.close()
    run.checked_servers.add(spec.name)


def _is_open(run: Run, cell: Cell) -> bool:
    if run.is_given(cell):
        return False
    answers = run.store.published("responses", cell.partition())
    return answers is None or bool(answers.manifest.get("rows_waiting"))


def open_engine(name: str, config: Mapping[str, Any], **paid: Any) -> Engine:
    """Open an engine, once for all workers of an actor; ``paid`` says who pays for its calls."""
    return hold(["engine", name, config], lambda: ENGINES.get(name)(EngineConfig(**config), **paid))


VERSION = 2


@dataclass(eq=False)
class SampleWorker:
    """Holds one engine; turns a batch of questions into a batch of response sets."""

    engine: str
    config: dict[str, Any]
    sampling: dict[str, Any]
    prompt: str
    system_prompt: str | None
    seed_parts: list[str]
    settings_sha256: str
    account: TokenAccount | None = None

    def __post_init__(self) -> None:
        paid = {"account": self.account} if self.account is not None else {}
        self._engine = open_engine(self.engine, self.config, **paid)
        self._sampling = Sampling(**{**self.sampling, "stop": tuple(self.sampling["stop"])})

    def __call__(self, batch: pa.Table) -> pa.Table:
        parts, questions = [], []
        for row in batch.to_pylist():
            if row.get("status", "ok") == "ok":
                questions.append(row)
            else:
                parts.append(failed_row(RESPONSES.schema, row["question_id"], row["error"], row["status"]))
        return pa.concat_tables([*parts, self._answers(questions)])

    def _answers(self, rows: list[dict[str, Any]]) -> pa.Table:
        if not rows:
            return RESPONSES.schema.empty_table()
        prompts = [
            question_prompt(self.prompt, self.system_prompt, row["question"], row["image"], self._seed(row))
            for row in rows
        ]
        try:
            generations = self._engine.sample(prompts, self._sampling)
        except PromptError as error:  # nothing was asked: the others still are, together
            parts = [
                failed_row(RESPONSES.schema, rows[index]["question_id"], f"{PromptError.__name__}: {reason}")
                for index, reason in error.reasons.items()
            ]
            others = [row for index, row in enumerate(rows) if index not in error.reasons]
            return pa.concat_tables([*parts, self._answers(others)])
        return pa.Table.from_pylist(
            [
                response_row(row["question_id"], prompt.seed, generation, self._engine.name)
                | {"settings_sha256": self.settings_sha256}
                for row, prompt, generation in zip(rows, prompts, generations, strict=True)
            ],
            schema=RESPONSES.schema,
        )

    def counts(self, output: pa.Table) -> Mapping[str, float]:
        tokens = pc.sum(pc.list_flatten(output["n_tokens"])).as_py()
        return {"tokens": float(tokens or 0)}

    def _seed(self, row: dict[str, Any]) -> int:
        # The seed hangs on the question alone, so a resume and the order of batches change nothing.
        return derived_seed(*self.seed_parts, row["question_id"], bits=SAMPLING_SEED_BITS)


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


def plan_sampling(run: Run, cell: Cell) -> list[Stage]:
    """Return the stage that samples the cell's answers into the responses table; none for given answers."""
    if run.is_given(cell):
        return []
    questions, sampling = run.questions(cell.dataset), as_settings(run.study.sampling_of(cell))
    return [sampling_stage(run, cell, questions, sampling)]


def sampling_stage(
    run: Run,
    cell: Cell,
    source: Published,
    sampling: Mapping[str, Any],
    name: str = "sample",
    table: Table = RESPONSES,
    seed_part: str | None = None,
) -> Stage:
    """Return the stage in which the cell's model answers ``source``, rows with a question and an image.

    ``seed_part`` keeps the seeds of other questions than those of the data set apart from theirs.
    """
    study, spec = run.study, run.study.model(cell.model)
    engine, config = engine_of(run, spec)
    preparation, resources = _engines(run, cell, spec, engine, source)
    settings = {
        "engine": engine,
        "prompt": sampling["prompt"],
        "sampling": {key: value for key, value in sampling.items() if key != "prompt"},
        "system_prompt": spec.system_prompt,
        "model": described(spec, config),
        "seed": study.seed,
        **ENGINES.plugins(engine),
    }
    if preparation is not None:
        settings["images"] = dict(preparation.arguments)
    seed_parts = [str(study.seed), cell.model, cell.dataset, *([seed_part] if seed_part else [])]
    return Stage(
        name=name,
        version=VERSION,
        table=table,
        partition=cell.partition(),
        source=source,
        columns=("question_id", "question", "image"),
        worker="sgpu.stages.sample:SampleWorker",
        arguments={
            "config": asdict(config),
            "seed_parts": seed_parts,
            "settings_sha256": fingerprint(settings),
        },
        settings=settings,
        holds={"engine": engine, "config": asdict(config)},
        engine=cell.model,
        resources=resources,
        preparation=preparation,
        shared=account_of(run, spec),
        check=lambda: check_server(run, spec),
    )


def _engines(
    run: Run, cell: Cell, spec: ModelSpec, engine: str, source: Published
) -> tuple[Preparation | None, Resources]:
    """Return the decoding step of a cell's images, if it has any, and what its engines run on."""
    preparation, block_rows = image_preparation(run, cell, source)
    concurrency = spec.options.concurrency if spec.options else None
    together = run.study.resources.sample_block_rows or concurrency
    rows = max(source.rows, count_questions(run, cell))
    resources = engine_actors(run, "sample", card_of(spec), engine, rows, together)
    if block_rows:
        resources = replace(resources, block_rows=min(block_rows, resources.block_rows))
    return preparation, resources


def engine_of(run: Run, spec: ModelSpec) -> tuple[str, EngineConfig]:
    """Return the engine that serves a model in this run, and how it is built."""
    card, engine = card_of(spec), engine_name(spec)
    if engine == "openai":
        return engine, served_config(spec)
    if work := work_before_first_use(card):
        run.progress.say(f"{card.name}: {work}")
    config = engine_config(card, run.resolved, run.progress.say)
    named = {"base_url", "api_key_env", "requests_per_minute", "revision"}
    return engine, replace(config, **spec.model_dump(include=named, exclude_none=True))


def asked_model(
    run: Run, cell: Cell, stage: ActorStage, purpose: str, card: str
) -> tuple[dict[str, Any], dict[str, Any], Resources]:
    """Return arguments and settings of a stage that asks a language model, and what the model runs on."""
    spec = ModelSpec(name=purpose, card=card)
    engine, config = engine_of(run, spec)
    block_rows, rows = run.study.resources.sample_block_rows, count_questions(run, cell)
    resources = engine_actors(run, stage, card_of(spec), engine, rows, block_rows)
    settings = {"engine": engine, "model": described(spec, config), **ENGINES.plugins(engine)}
    return {"config": asdict(config)}, settings, resources


def described(spec: ModelSpec, config: EngineConfig) -> dict[str, Any]:
    """Return the part of a stage's settings that names its model, and the plug-in that brings it.

    The path of a converted checkpoint differs between machines; its card and revision do not. Neither the
    device nor a server's pace changes an answer.
    """
    options = {name: value for name, value in config.options.items() if name not in PACE}
    described = {**asdict(config), "model": spec.model or card_of(spec).source, "options": options}
    del described["device"]
    return described | MODEL_PLUGINS.plugins(spec.card_name)
