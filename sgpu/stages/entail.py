"""Entailment stage: what each answer says of each other one, in one pass for all methods that ask.

`setup_of` says what a backend is built from in a study, and what of it decides the table's content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from sgpu.encoders import ENCODERS, load_encoder
from sgpu.encoders.spectra import Embed, embedded_texts, with_embedded_texts
from sgpu.entailment.base import BACKENDS
from sgpu.entailment.checkpoint import DEFAULT_MODEL, find_commit, locate
from sgpu.entailment.rows import entailment_rows
from sgpu.entailment.two_way import fit_threshold
from sgpu.methods.base import METHODS, Need
from sgpu.runtime.stage import Resources, Stage, hold
from sgpu.stages.actors import light_actors, rule_actors
from sgpu.stages.decode import StoredQuestions
from sgpu.stages.encode import answers_per_question, open_encoder
from sgpu.stages.judge import judge_label
from sgpu.stages.run import Run
from sgpu.stages.sample import asked_model, open_engine
from sgpu.storage.store import Partition, Published
from sgpu.storage.tables import ENTAILMENT
from sgpu.study.benchmark import Cell, Study

# For cells without training questions that a threshold can be fitted to. Fits on sentences with
# all-MiniLM-L6-v2 gave 0.73 and 0.76.
UNFITTED_THRESHOLD = 0.75
# A threshold is one number: a thousand questions settle it.
FIT_QUESTIONS = 1000
# Up to 380 pairs a row: small blocks, so that a run that stops loses little of a slow model's work.
CLASSIFIER_BLOCK_ROWS = 64


def entailment_model(study: Study) -> str | None:
    """The classifier, encoder or model card behind the study's backend; None for a backend without one."""
    defaults = {"encoder": study.encoder.name, "checkpoint": DEFAULT_MODEL}
    return study.entailment.model or defaults.get(built_from(study))


def built_from(study: Study) -> str:
    """What the study's backend declares to be built from; see `sgpu.entailment.base.Backend`."""
    return getattr(BACKENDS.get(study.entailment.backend), "built_from", "nothing")


@dataclass(frozen=True)
class Setup:
    """What a backend is built from, and what of it decides the content of the table."""

    settings: dict[str, Any]
    resources: Resources
    # The backend's options, and the encoder or engine that the worker loads.
    arguments: dict[str, Any] = field(default_factory=lambda: {"options": {}})
    fit_threshold: Callable[[], float] | None = None


def setup_of(run: Run, cell: Cell) -> Setup:
    """What the study's backend is built from; by default from nothing, as a rule is."""
    build = {"encoder": _of_encoder, "checkpoint": _of_checkpoint, "engine": _of_engine}.get(
        built_from(run.study)
    )
    return build(run, cell) if build else Setup({}, rule_actors(run, "entail"))


def _of_encoder(run: Run, cell: Cell) -> Setup:
    spec, name = run.study.entailment, entailment_model(run.study)
    dtype = run.resolved.encoder_dtype_for(run.study.encoder.dtype)
    encoder = {"name": name, "dtype": dtype, "device": run.resolved.device}
    settings: dict[str, Any] = {"encoder": name, "dtype": dtype}
    resources = light_actors(run, "entail")
    if spec.threshold is not None:
        options = {"threshold": spec.threshold}
        return Setup({**settings, **options}, resources, {"options": options, "encoder": encoder})
    labels = run.store.require("labels", cell.partition(judge=judge_label(run, cell)))
    settings["threshold"] = {"fitted_on": labels.fingerprint, "questions": FIT_QUESTIONS}

    fit = partial(_fit_threshold, run, cell, labels, encoder)
    return Setup(settings, resources, {"options": {}, "encoder": encoder}, fit)


def _of_checkpoint(run: Run, cell: Cell) -> Setup:
    spec, model = run.study.entailment, entailment_model(run.study)
    assert model is not None
    settings = {"model": model, **spec.model_dump(include={"revision", "prefix_question"})}
    settings["dtype"] = run.resolved.encoder_dtype_for(spec.dtype)
    light = light_actors(run, "entail")
    return Setup(
        settings={**settings, "commit": find_commit(locate(model, spec.revision))},
        resources=replace(light, block_rows=min(light.block_rows, CLASSIFIER_BLOCK_ROWS)),
        arguments={"options": {**settings, "device": run.resolved.device}},
    )


def _of_engine(run: Run, cell: Cell) -> Setup:
    name = entailment_model(run.study)
    assert name is not None
    options = {"min_mass": run.study.entailment.min_mass}
    asking, described, resources = asked_model(run, cell, "entail", "entailment", name)
    return Setup(
        settings={**described, **options},
        resources=resources,
        arguments={"options": options, **asking},
    )


def _fit_threshold(run: Run, cell: Cell, labels: Published, encoder: Mapping[str, Any]) -> float:
    """Fit the cosine threshold of a cell to its training questions alone."""
    questions = run.questions(cell.dataset)
    responses = run.responses(cell)
    embed = run.study.dataset(cell.dataset).embed
    splits = questions.read(["question_id", "split", "position"]).to_pylist()
    train = {r["question_id"] for r in splits if r["split"] == "train" and r["position"] < FIT_QUESTIONS}
    votes = {
        row["question_id"]: row["votes"]
        for row in labels.read(["question_id", "votes"]).to_pylist()
        if row["votes"] and row["question_id"] in train
    }
    judged = [
        (embedded_texts(row["answers"], embed), votes[row["question_id"]])
        for row in responses.read(["question_id", "answers"]).to_pylist()
        if row["answers"] and row["question_id"] in votes
    ]
    fit = fit_threshold(load_encoder(**encoder), [answers for answers, _ in judged], [v for _, v in judged])
    if fit is None:
        run.notes.append(
            f"{cell}: no training question has both two right answers in different words and a wrong one, so "
            f"that the entailment threshold could not be fitted; it is {UNFITTED_THRESHOLD}."
        )
        return UNFITTED_THRESHOLD
    run.progress.say(
        f"  entailment threshold of {cell}: cosine {fit.threshold:.3f}, from {fit.n_same} pairs of one "
        f"meaning and {fit.n_different} of two, balanced accuracy {fit.balanced_accuracy:.2f}"
    )
    return fit.threshold


VERSION = 2  # also raised when a backend's prompt changes
ASKS: frozenset[Need] = frozenset({"entail", "contradict", "clusters"})


@dataclass(eq=False)
class EntailWorker:
    """Holds one backend, with its engine or encoder, and the questions of the data set."""

    backend: str
    question_files: list[str]
    n: int
    options: dict[str, Any]
    encoder: dict[str, Any] | None = None
    engine: str | None = None
    config: dict[str, Any] | None = None
    embed: Embed = "full"

    def __post_init__(self) -> None:
        parts = dict(self.options)
        if self.encoder is not None:
            parts["encoder"] = open_encoder(**self.encoder)
        if self.engine is not None and self.config is not None:
            parts["engine"] = open_engine(self.engine, self.config)
        key = ["backend", self.backend, self.options, self.encoder, self.engine, self.config]
        self._backend = hold(key, lambda: BACKENDS.get(self.backend)(**parts))
        # What an encoder or a classifier computes in; other backends have none.
        self._dtype = getattr(parts.get("encoder", self._backend), "dtype", None)
        self._questions = StoredQuestions(self.question_files, None).texts

    def __call__(self, batch: pa.Table) -> pa.Table:
        batch, threshold = with_embedded_texts(batch, self.embed), self.options.get("threshold")
        return entailment_rows(batch, self._questions, self._backend, self.n, threshold, self._dtype)

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
        values = published.read([name])[name].drop_null()
        record[f"entailment_{name}"] = values[0].as_py() if len(values) else None
    return record


def plan_entailment(run: Run, cell: Cell) -> list[Stage]:
    """Return the stage that writes the cell's entailments; none if no method of the study asks for them.

    A threshold that its backend needs is fitted to the labels first.
    """
    if not needs_entailment(run.study):
        return []
    questions, setup, backend = run.questions(cell.dataset), setup_of(run, cell), run.study.entailment.backend
    stage = Stage(
        name="entail",
        version=VERSION,
        table=ENTAILMENT,
        partition=_partition(run, cell),
        source=run.responses(cell),
        columns=("question_id", "status", "error", "answers"),
        worker="sgpu.stages.entail:EntailWorker",
        arguments={"question_files": list(questions.files), **setup.arguments},
        settings={
            "backend": backend,
            "n": answers_per_question(run, cell),
            "embed": run.study.dataset(cell.dataset).embed,
            "questions": questions.fingerprint,
            **setup.settings,
            **BACKENDS.plugins(backend),
            **ENCODERS.plugins(setup.settings.get("encoder", "")),
        },
        # A threshold is another one in each cell, and no reason to load the encoder again.
        holds={"backend": backend, **setup.arguments, **({"options": None} if setup.fit_threshold else {})},
        engine=backend if built_from(run.study) == "checkpoint" else entailment_model(run.study) or backend,
        resources=setup.resources,
    )
    if setup.fit_threshold is not None and stage.published(run.store) is None:
        options = {"threshold": setup.fit_threshold()}
        stage = replace(stage, arguments={**stage.arguments, "options": options})
    return [stage]


def _partition(run: Run, cell: Cell) -> Partition:
    return cell.partition(backend=entailment_label(run.study))
