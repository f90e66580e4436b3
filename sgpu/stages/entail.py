"""Entailment stage: what each answer says of each other one, in one pass for all methods that ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sgpu.encoders import load_encoder
from sgpu.encoders.texts import Embed, with_embedded_texts
from sgpu.engines.base import ENGINES, EngineConfig
from sgpu.entailment.base import BACKENDS
from sgpu.entailment.rows import entailment_rows
from sgpu.methods.base import METHODS, Need
from sgpu.runtime.begun import as_begun, begun_of, encoder_dtypes, in_dtype
from sgpu.runtime.run import Run
from sgpu.runtime.stage import Outcome, Stage
from sgpu.stages.encode import answers_per_question
from sgpu.stages.entail_setup import entailment_model, setup_of
from sgpu.storage.parquet_files import read_rows
from sgpu.storage.store import Partition, Published, fingerprint
from sgpu.storage.tables import ENTAILMENT
from sgpu.study.benchmark import Cell, Study

VERSION = 1
ASKS: frozenset[Need] = frozenset({"entail", "contradict", "clusters"})


class EntailWorker:
    """Holds one backend, with its engine or encoder, and the questions of the data set."""

    def __init__(
        self,
        backend: str,
        question_files: list[str],
        n: int,
        options: dict[str, Any],
        encoder: dict[str, Any] | None = None,
        engine: str | None = None,
        config: dict[str, Any] | None = None,
        embed: Embed = "full",
    ) -> None:
        self._embed = embed
        parts = dict(options)
        if encoder is not None:
            parts["encoder"] = load_encoder(**encoder)
        if engine is not None and config is not None:
            parts["engine"] = ENGINES.get(engine)(EngineConfig(**config))
        self._backend = BACKENDS.get(backend)(**parts)
        self._n, self._threshold = n, options.get("threshold")
        # What an encoder or a classifier computes in; other backends have none.
        self._dtype = getattr(parts.get("encoder", self._backend), "dtype", None)
        self._questions: dict[str, str] = {}
        for file in question_files:
            columns = read_rows(file, ["question_id", "question"])
            self._questions.update(
                zip(*(columns[name].to_pylist() for name in columns.column_names), strict=True)
            )

    def __call__(self, batch: pa.Table) -> pa.Table:
        batch = with_embedded_texts(batch, self._embed)
        return entailment_rows(batch, self._questions, self._backend, self._n, self._threshold, self._dtype)

    def counts(self, output: pa.Table) -> Mapping[str, float]:
        distinct = [count or 0 for count in output["n_distinct"].to_pylist()]
        return {"pairs": float(sum(count * (count - 1) for count in distinct))}


def needs_entailment(study: Study) -> bool:
    """Whether a method of the study compares answers."""
    return any(METHODS.get(name).needs & ASKS for name in study.methods)


def entailment_label(study: Study) -> str:
    """The backend and its model as a partition value, for instance cosine-all-MiniLM-L6-v2."""
    spec, model = study.entailment, entailment_model(study)
    return spec.backend if model is None else f"{spec.backend}-{model.strip('/').replace('/', '--')}"


def published_entailment(run: Run, cell: Cell) -> Published | None:
    """The cell's entailments by the study's backend; None if no method of the study asks for them."""
    if not needs_entailment(run.study):
        return None
    return run.store.require(ENTAILMENT.name, _partition(run, cell))


def entailment_record(run: Run, cell: Cell) -> dict[str, object]:
    """What every result row says of the entailments that it may rest on; empty if none were asked for."""
    published = published_entailment(run, cell)
    if published is None:
        return {}
    record: dict[str, object] = {"entailment": entailment_label(run.study)}
    for name in ("threshold", "dtype"):
        known = published.read([name])[name].drop_null()
        record[f"entailment_{name}"] = known[0].as_py() if len(known) else None
    return record


def entail(run: Run, cell: Cell) -> Outcome | None:
    """Write the cell's entailments; None if no method of the study asks for them."""
    if not needs_entailment(run.study):
        return None
    n, backend = answers_per_question(run, cell), run.study.entailment.backend
    questions = run.store.require("questions", Partition.of(dataset=cell.dataset))
    setup, embed = setup_of(run, cell), run.study.dataset(cell.dataset).embed
    stage = Stage(
        name="entail",
        version=VERSION,
        table=ENTAILMENT,
        partition=_partition(run, cell),
        source=run.store.require("responses", Partition.of(model=cell.model, dataset=cell.dataset)),
        columns=("question_id", "status", "error", "answers"),
        worker="sgpu.stages.entail:EntailWorker",
        arguments={
            "backend": backend,
            "question_files": list(questions.files),
            "n": n,
            "options": setup.options,
            "embed": embed,
            **setup.parts,
        },
        settings={
            "backend": backend,
            "n": n,
            "embed": embed,
            "questions": questions.fingerprint,
            **setup.settings,
        },
        resources=setup.resources,
    )
    stage = _begun(run, stage)
    due = run.store.unchanged(ENTAILMENT.name, stage.partition, fingerprint(stage.content)) is None
    if due and setup.fit_threshold is not None:
        options = {**setup.options, "threshold": setup.fit_threshold(stage.settings["dtype"])}
        stage = replace(stage, arguments={**stage.arguments, "options": options})
    return run.run_stage(stage)


def _begun(run: Run, stage: Stage) -> Stage:
    """With the settings with which the table was published or begun."""
    if "dtype" in stage.settings:
        part = "encoder" if "encoder" in stage.arguments else "options"  # of a classifier
        dtypes = encoder_dtypes(run, stage.settings["dtype"])
        return begun_of(run, [in_dtype(stage, dtype, arguments=part) for dtype in dtypes])
    model = entailment_model(run.study)
    if "config" not in stage.arguments or model is None:
        return stage
    # Tables of before the prompt had marks stay as they are.
    unmarked = {key: value for key, value in stage.settings.items() if key != "prompt_version"}
    before = as_begun(run, replace(stage, settings=unmarked), model)
    return run.as_published(as_begun(run, stage, model), before.settings)


def _partition(run: Run, cell: Cell) -> Partition:
    return Partition.of(model=cell.model, dataset=cell.dataset, backend=entailment_label(run.study))
