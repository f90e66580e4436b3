"""Sampling stage: N answers of one model to every question of one data set.

Each server of a study is asked, before any work, whether it, its key and its model are there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.engines.base import ENGINES, NO_ANSWER, Engine, EngineConfig, Generation, Prompt, Sampling
from sgpu.engines.costs import CallCosts, CostsClient, Terms
from sgpu.errors import PromptError
from sgpu.hashing import SAMPLING_SEED_BITS, derived_seed
from sgpu.runtime.ledger import ask
from sgpu.runtime.session import named_cluster
from sgpu.runtime.stage import Preparation, Resources, Shared, Stage, failed_row
from sgpu.runtime.worker import NOT_CONTENT, Held, StageWorker, content_of, hold
from sgpu.stages.actors import count_questions, engine_actors
from sgpu.stages.decode import DecodeWorker, image_decoder, image_preparation
from sgpu.stages.run import Run
from sgpu.storage.store import Published, fingerprint
from sgpu.storage.tables import RESPONSES, Table
from sgpu.study.benchmark import Cell, Study
from sgpu.study.data_specs import SamplingSpec
from sgpu.study.models import (
    MODEL_PLUGINS,
    card_of,
    engine_config,
    engine_name,
    served_config,
    work_before_first_use,
)
from sgpu.study.specs import PACE, ActorStage, BudgetSpec, ModelSpec


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


@dataclass(frozen=True)
class HeldEngine(Held):
    """A model in its engine, which the actors of a stage open.

    ``source`` is what its card or its server calls the model; the path of a converted checkpoint, which is in
    ``config``, differs between machines.
    """

    name: str
    config: EngineConfig
    source: str
    card: str

    def open(self, **paid: Any) -> Engine:
        """Open it, once for all workers of an actor; ``paid`` says who pays for its calls."""
        return hold(self, lambda: ENGINES.get(self.name)(self.config, **paid))

    def content(self) -> dict[str, Any]:
        """Return what decides its answers: neither the device nor a server's pace does."""
        content = {"engine": self.name, **asdict(self.config), "model": self.source}
        content["options"] = {key: v for key, v in self.config.options.items() if key not in PACE}
        del content["device"]
        return content | ENGINES.plugins(self.name) | MODEL_PLUGINS.plugins(self.card)


VERSION = 3


@dataclass(eq=False)
class SampleWorker(StageWorker):
    """Turns a batch of questions into a batch of response sets.

    The seed of a question's answers is derived from ``seed`` and its id.
    """

    model: HeldEngine
    sampling: Sampling
    prompt: str
    system_prompt: str | None
    seed: Sequence[str]
    images: DecodeWorker | None = None
    account: CostsClient | None = field(default=None, metadata=NOT_CONTENT)

    def open(self) -> None:
        paid = {"account": self.account} if self.account is not None else {}
        self._engine = self.model.open(**paid)
        self._settings_sha256 = fingerprint(content_of(self))

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
            generations = self._engine.sample(prompts, self.sampling)
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
        return derived_seed(*self.seed, row["question_id"], bits=SAMPLING_SEED_BITS)


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
    spec = run.study.sampling_of(cell)
    return [sampling_stage(run, cell, run.questions(cell.dataset), as_sampling(spec), spec.prompt)]


def as_sampling(spec: SamplingSpec) -> Sampling:
    """Return how a study's answers are drawn, as engines are told."""
    return Sampling(**{**spec.model_dump(exclude={"prompt"}), "stop": tuple(spec.stop)})


def sampling_stage(
    run: Run,
    cell: Cell,
    source: Published,
    sampling: Sampling,
    prompt: str,
    name: str = "sample",
    table: Table = RESPONSES,
    seed_part: str | None = None,
) -> Stage:
    """Return the stage in which the cell's model answers ``source``, rows with a question and an image.

    ``seed_part`` keeps the seeds of other questions than those of the data set apart from theirs.
    """
    spec = run.study.model(cell.model)
    engine = engine_of(run, spec)
    preparation, resources = _engines(run, cell, spec, engine.name, source)
    worker = SampleWorker(
        engine,
        sampling,
        prompt,
        spec.system_prompt,
        [str(run.study.seed), cell.model, cell.dataset, *([seed_part] if seed_part else [])],
        image_decoder(run.study, cell) if preparation is not None else None,
    )
    return Stage(
        name=name,
        version=VERSION,
        table=table,
        partition=cell.partition(),
        source=source,
        columns=("question_id", "question", "image"),
        worker=worker,
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


def engine_of(run: Run, spec: ModelSpec) -> HeldEngine:
    """Return a model in the engine that serves it in this run."""
    card, engine = card_of(spec), engine_name(spec)
    if engine == "openai":
        config = served_config(spec)
    else:
        if work := work_before_first_use(card):
            run.progress.say(f"{card.name}: {work}")
        config = engine_config(card, run.resolved, run.progress.say)
        named = {"base_url", "api_key_env", "requests_per_minute", "revision"}
        config = replace(config, **spec.model_dump(include=named, exclude_none=True))
    return HeldEngine(engine, config, spec.model or card.source, spec.card_name)


def asked_model(
    run: Run, cell: Cell, stage: ActorStage, purpose: str, card: str
) -> tuple[HeldEngine, Resources]:
    """Return the language model that a stage asks, and what it runs on."""
    spec = ModelSpec(name=purpose, card=card)
    engine, block_rows = engine_of(run, spec), run.study.resources.sample_block_rows
    rows = count_questions(run, cell)
    return engine, engine_actors(run, stage, card_of(spec), engine.name, rows, block_rows)
