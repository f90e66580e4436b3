"""Entailment stage: what each answer says of each other one, in one pass for all methods that ask.

`setup_of` says what a backend is built from in a study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from sgpu.encoders.spectra import Embed, embedded_texts, with_embedded_texts
from sgpu.entailment.base import BACKENDS, Backend
from sgpu.entailment.checkpoint import DEFAULT_MODEL, find_commit, locate
from sgpu.entailment.rows import entailment_rows
from sgpu.entailment.two_way import fit_threshold
from sgpu.methods.base import METHODS, Need
from sgpu.runtime.stage import Resources, Stage
from sgpu.runtime.worker import NOT_CONTENT, Held, StageWorker, hold, name_in
from sgpu.stages.actors import light_actors, rule_actors
from sgpu.stages.decode import StoredQuestions
from sgpu.stages.encode import HeldEncoder, answers_per_question, encoder_of
from sgpu.stages.judge import judge_label
from sgpu.stages.run import Run
from sgpu.stages.sample import HeldEngine, asked_model
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
class HeldBackend(Held):
    """A backend of entailment that the actors of a stage open, with its options and its encoder or engine.

    ``commit`` is that of a classifier's checkpoint. Only such a backend is told the ``device``.
    """

    name: str = field(metadata=name_in(BACKENDS))
    options: Mapping[str, Any] = field(default_factory=dict)
    encoder: HeldEncoder | None = None
    engine: HeldEngine | None = None
    commit: str | None = None
    device: str | None = field(default=None, metadata=NOT_CONTENT)

    def open(self, threshold: float | None = None) -> Backend:
        """Open it, once for all workers of an actor with the same fitted ``threshold``."""
        parts = dict(self.options)
        parts |= {"threshold": threshold} if threshold is not None else {}
        parts |= {"device": self.device} if self.device is not None else {}
        parts |= {name: held.open() for name in ("encoder", "engine") if (held := getattr(self, name))}
        backend: Backend = hold((self, threshold), lambda: BACKENDS.get(self.name)(**parts))
        return backend


class Setup(NamedTuple):
    """A study's backend, what its actors ask for, and what its threshold is fitted on, if it is, and how."""

    backend: HeldBackend
    resources: Resources
    fitted_on: Mapping[str, object] | None = None
    fit_threshold: Callable[[], float] | None = None


def setup_of(run: Run, cell: Cell) -> Setup:
    """Return what the study's backend is built from; by default from nothing, as a rule is."""
    build = {"encoder": _of_encoder, "checkpoint": _of_checkpoint, "engine": _of_engine}.get(
        built_from(run.study)
    )
    backend = HeldBackend(run.study.entailment.backend)
    return build(run, cell, backend) if build else Setup(backend, rule_actors(run, "entail"))


def _of_encoder(run: Run, cell: Cell, backend: HeldBackend) -> Setup:
    encoder, resources = encoder_of(run, entailment_model(run.study)), light_actors(run, "entail")
    if (threshold := run.study.entailment.threshold) is not None:
        return Setup(replace(backend, options={"threshold": threshold}, encoder=encoder), resources)
    labels = run.store.require("labels", cell.partition(judge=judge_label(run, cell)))
    fitted_on = {"labels": labels.fingerprint, "questions": FIT_QUESTIONS}
    fit = partial(_fit_threshold, run, cell, labels, encoder)
    return Setup(replace(backend, encoder=encoder), resources, fitted_on, fit)


def _of_checkpoint(run: Run, cell: Cell, backend: HeldBackend) -> Setup:
    spec, model, light = run.study.entailment, entailment_model(run.study), light_actors(run, "entail")
    assert model is not None
    options = {"model": model, **spec.model_dump(include={"revision", "prefix_question"})}
    options["dtype"] = run.resolved.encoder_dtype_for(spec.dtype)
    commit = find_commit(locate(model, spec.revision))
    backend = replace(backend, options=options, commit=commit, device=run.resolved.device)
    return Setup(backend, replace(light, block_rows=min(light.block_rows, CLASSIFIER_BLOCK_ROWS)))


def _of_engine(run: Run, cell: Cell, backend: HeldBackend) -> Setup:
    name = entailment_model(run.study)
    assert name is not None
    engine, resources = asked_model(run, cell, "entail", "entailment", name)
    options = {"min_mass": run.study.entailment.min_mass}
    return Setup(replace(backend, options=options, engine=engine), resources)


def _fit_threshold(run: Run, cell: Cell, labels: Published, encoder: HeldEncoder) -> float:
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
    fit = fit_threshold(encoder.open(), [answers for answers, _ in judged], [v for _, v in judged])
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


VERSION = 3  # also raised when a backend's prompt changes
ASKS: frozenset[Need] = frozenset({"entail", "contradict", "clusters"})


@dataclass(eq=False)
class EntailWorker(StageWorker):
    """Says what each answer of a set entails; ``questions`` is the fingerprint of the data set's questions.

    ``threshold`` is one that was fitted on the rows that ``fitted_on`` names.
    """

    backend: HeldBackend
    n: int
    embed: Embed
    questions: str
    question_files: Sequence[str] = field(metadata=NOT_CONTENT)
    fitted_on: Mapping[str, object] | None = None
    threshold: float | None = field(default=None, metadata=NOT_CONTENT)

    def open(self) -> None:
        self._backend, encoder = self.backend.open(self.threshold), self.backend.encoder
        # What an encoder or a classifier computes in; other backends have none.
        self._dtype = getattr(encoder.open() if encoder else self._backend, "dtype", None)
        self._questions = StoredQuestions(self.question_files).texts

    def __call__(self, batch: pa.Table) -> pa.Table:
        batch = with_embedded_texts(batch, self.embed)
        threshold = self.backend.options.get("threshold", self.threshold)
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
    questions, setup = run.questions(cell.dataset), setup_of(run, cell)
    backend = run.study.entailment.backend
    worker = EntailWorker(
        setup.backend,
        answers_per_question(run, cell),
        run.study.dataset(cell.dataset).embed,
        questions.fingerprint,
        questions.files,
        setup.fitted_on,
    )
    stage = Stage(
        name="entail",
        version=VERSION,
        table=ENTAILMENT,
        partition=_partition(run, cell),
        source=run.responses(cell),
        columns=("question_id", "status", "error", "answers"),
        worker=worker,
        engine=backend if built_from(run.study) == "checkpoint" else entailment_model(run.study) or backend,
        resources=setup.resources,
    )
    if setup.fit_threshold is not None and stage.published(run.store) is None:
        stage = replace(stage, worker=replace(worker, threshold=setup.fit_threshold()))
    return [stage]


def _partition(run: Run, cell: Cell) -> Partition:
    return cell.partition(backend=entailment_label(run.study))
