"""What each entailment backend is built from in a study, and what of it decides the table's content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sgpu.encoders import load_encoder
from sgpu.encoders.texts import embedded_texts
from sgpu.entailment.checkpoint import DEFAULT_MODEL, commit, locate
from sgpu.entailment.cosine import fit_threshold
from sgpu.entailment.llm import PROMPT_VERSION
from sgpu.runtime.run import Run
from sgpu.runtime.stage import Resources
from sgpu.stages.judge import judge_label
from sgpu.stages.sample import engine_of
from sgpu.storage.store import Partition, Published
from sgpu.study.benchmark import Cell, Study
from sgpu.study.models import model_card
from sgpu.study.specs import ModelSpec

# For cells without training questions that a threshold can be fitted to. Fits on sentences with
# all-MiniLM-L6-v2 gave 0.73 and 0.76.
UNFITTED_THRESHOLD = 0.75
# A threshold is one number: a thousand questions settle it.
FIT_QUESTIONS = 1000
# Up to 380 pairs a row: small blocks, so that a run that stops loses little of a slow model's work.
CLASSIFIER_BLOCK_ROWS = 64


def entailment_model(study: Study) -> str | None:
    """The classifier, encoder or model card behind the study's backend; None for a backend without one."""
    defaults = {"cosine": study.encoder.name, "deberta": DEFAULT_MODEL}
    return study.entailment.model or defaults.get(study.entailment.backend)


@dataclass(frozen=True)
class Setup:
    """What a backend is built from, and what of it decides the content of the table."""

    settings: dict[str, Any]
    resources: Resources
    options: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)  # the encoder or engine that the worker loads
    fit_threshold: Callable[[str], float] | None = None  # in a dtype


def setup_of(run: Run, cell: Cell) -> Setup:
    """What the study's backend is built from; by default from nothing, as a rule is."""
    build = {"cosine": _cosine, "deberta": _deberta, "llm": _llm}.get(run.study.entailment.backend, _rule)
    return build(run, cell)


def _rule(run: Run, cell: Cell) -> Setup:
    return Setup({}, run.light_resources(run.study.resources.entailers))


def _cosine(run: Run, cell: Cell) -> Setup:
    spec, name = run.study.entailment, entailment_model(run.study)
    encoder = {"name": name, "dtype": run.study.encoder.dtype, "device": run.study.resources.device}
    settings: dict[str, Any] = {"encoder": name, "dtype": run.study.encoder.dtype}
    resources = run.light_resources(run.study.resources.entailers)
    parts = {"encoder": encoder}
    if spec.threshold is not None:
        options = {"threshold": spec.threshold}
        return Setup({**settings, **options}, resources, options, parts)
    labels = run.store.require(
        "labels",
        Partition.of(model=cell.model, dataset=cell.dataset, judge=judge_label(run, cell)),
    )
    settings["threshold"] = {"fitted_on": labels.fingerprint, "questions": FIT_QUESTIONS}

    def fitted(dtype: str) -> float:
        return _fitted_threshold(run, cell, labels, {**encoder, "dtype": dtype})

    return Setup(settings, resources, {}, parts, fitted)


def _deberta(run: Run, cell: Cell) -> Setup:
    spec, model = run.study.entailment, entailment_model(run.study)
    assert model is not None
    settings = {
        "model": model,
        "revision": spec.revision,
        "prefix_question": spec.prefix_question,
        "dtype": spec.dtype,
    }
    light = run.light_resources(run.study.resources.entailers)
    return Setup(
        settings={**settings, "commit": commit(locate(model, spec.revision))},
        resources=replace(light, block_rows=min(light.block_rows, CLASSIFIER_BLOCK_ROWS)),
        options={**settings, "device": run.study.resources.device},
    )


def _llm(run: Run, cell: Cell) -> Setup:
    name, ask = entailment_model(run.study), run.study.resources
    assert name is not None
    engine, config = engine_of(run, ModelSpec(name="entailment", card=name))
    options = {"min_mass": run.study.entailment.min_mass}
    return Setup(
        # As in sampling, the card says which weights they are, not the folder on this machine.
        settings={
            "engine": engine, "model": {**asdict(config), "model": model_card(name).source}, **options,
            "prompt_version": PROMPT_VERSION,
        },
        resources=run.engine_resources(
            engine, ask.entailers, ask.sample_block_rows, config.tensor_parallel_size
        ),
        options=options,
        parts={"engine": engine, "config": asdict(config)},
    )  # fmt: skip


def _fitted_threshold(run: Run, cell: Cell, labels: Published, encoder: Mapping[str, Any]) -> float:
    """The cosine threshold of a cell, from its training questions alone."""
    questions = run.store.require("questions", Partition.of(dataset=cell.dataset))
    responses = run.store.require("responses", Partition.of(model=cell.model, dataset=cell.dataset))
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
