"""From a study file and the cards that it names to the records that a plan is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sgpu.encoders.cards import ENCODERS
from sgpu.engines.base import has_own_models
from sgpu.errors import UsageError
from sgpu.hidden.rows import ModelShape
from sgpu.images import scaled_size
from sgpu.judges.base import asks_model
from sgpu.methods.base import METHODS
from sgpu.plan.cells import PlanCell, PlanJudge, PlanModel, PlanStudy, Sizes, grant_sizes
from sgpu.plan.image_tokens import NO_IMAGE, ImageCost, image_rule
from sgpu.plan.rates import Rates
from sgpu.provenance import available_cores
from sgpu.stages.entail import entailment_model, needs_entailment
from sgpu.stages.hidden import needs_hidden_states, row_bytes, wanted_states
from sgpu.stages.preflight import loaded_cards, missing
from sgpu.storage.parquet_files import row_count
from sgpu.study.benchmark import Cell, Study
from sgpu.study.data_specs import JudgeSpec, QuestionsSpec, ResponsesSpec
from sgpu.study.models import card_of
from sgpu.study.specs import ModelSpec

BYTES_PER_PARAMETER = {"float32": 4}
UNKNOWN_DIM = 384
UNBOUNDED = 10**12  # pixels
OPEN_DEVICE = (
    "The study leaves its device open (resources.device is auto): planned on {}. A run on one machine takes "
    "a GPU if there is one; a run on a cluster wants resources.device=cuda or cpu."
)


def plan_study(study: Study, rates: Rates) -> PlanStudy:
    """Return what the study will do, as far as cards tell; no data are loaded.

    Raises UsageError for names that exist nowhere.
    """
    for method in study.methods:
        METHODS.check(method)
    cells = tuple(_cell(study, cell, rates) for cell in study.cells())
    backend, on_cpu = study.entailment.backend if needs_entailment(study) else None, _on_cpu(study)
    note = OPEN_DEVICE.format("a CPU" if on_cpu else "GPUs")
    asked = ModelSpec(name=entailment_model(study) or "") if backend == "llm" else None
    return PlanStudy(
        name=study.name,
        cells=cells,
        entailment=backend,
        entailment_model=_model(asked) if asked else None,
        fits_threshold=backend == "cosine" and study.entailment.threshold is None,
        reads_hidden=needs_hidden_states(study),
        on_cpu=on_cpu,
        cores=available_cores(),
        notes=(note,) if study.resources.device == "auto" else (),
        missing=tuple(str(error) for error in missing(study)),
        weights_gb=sum(card.memory_gib for card in loaded_cards(study) if not card.packaged) * 2**30 / 1e9,
        hidden_gb=_hidden_gb(study, cells),
    )


def _hidden_gb(study: Study, cells: Sequence[PlanCell]) -> float | None:
    """Return what the hidden states of all cells take on disk; None where a model's shape is not known."""
    size = 0
    for cell in cells if needs_hidden_states(study) else ():
        if cell.sampled_elsewhere or has_own_models(cell.model.engine):
            continue
        shape = card_of(study.model(cell.model.name)).shape
        if shape is None:
            return None
        size += cell.questions * row_bytes(wanted_states(study, ModelShape(*shape), cell.n))
    return size / 1e9


def _on_cpu(study: Study) -> bool:
    """Return whether the study is planned on a CPU: one device for all its stages, as a run has it.

    If it does not set one, a CPU is enough if every model comes in a package or is served elsewhere.
    """
    if study.resources.device != "auto":
        return study.resources.device == "cpu"
    only_responses = all(isinstance(dataset, ResponsesSpec) for dataset in study.datasets)
    specs = [] if only_responses else list(study.models)
    names = [name for dataset in study.datasets for name in study.judge_of(dataset.name).models]
    if needs_entailment(study) and study.entailment.backend == "llm":
        names.append(entailment_model(study) or "")
    specs += [ModelSpec(name=name) for name in dict.fromkeys(names)]
    return all(spec.engine == "openai" or card_of(spec).packaged for spec in specs)


def _model(spec: ModelSpec) -> PlanModel:
    """Return the card's facts; the parameters follow from the weights' size where it does not tell them."""
    if spec.engine == "openai":
        price = (spec.price.input, spec.price.output) if spec.price else None
        return PlanModel(name=spec.name, parameters=None, engine="openai", price=price)
    card = card_of(spec)
    parameters = card.parameters or card.memory_gib * 2**30 / BYTES_PER_PARAMETER.get(card.dtype, 2) / 1e9
    return PlanModel(
        name=spec.name,
        parameters=parameters or None,
        engine=spec.engine or card.engine,
        gpus=card.tensor_parallel_size,
        memory_gib=card.memory_gib,
        tower_parameters=image_rule(card.image.tokens).tower_parameters if card.image else 0.0,
    )


def _cell(study: Study, cell: Cell, rates: Rates) -> PlanCell:
    spec = study.dataset(cell.dataset)
    planned = (
        _responses_cell(study, spec)
        if isinstance(spec, ResponsesSpec)
        else _questions_cell(study, study.model(cell.model), spec, rates)
    )
    names = dict.fromkeys([study.encoder.name, *study.sensitivity_of(cell).encoders])
    dims = (ENCODERS.get(name).dim if name in ENCODERS else UNKNOWN_DIM for name in names)
    return replace(planned, encoders=tuple(zip(names, dims, strict=True)))


def _questions_cell(study: Study, answering: ModelSpec, spec: QuestionsSpec, rates: Rates) -> PlanCell:
    card, requested = spec.card, Sizes(spec.n_train + (spec.n_validation or 0), spec.n_test)
    pools = {"all": card.hub_rows} if card.hub_rows and not spec.path else card.pools
    granted, model = grant_sizes(requested, pools), _model(answering)
    sampling = study.sampling_of(Cell(answering.name, spec.name))
    image, unknown = _image(spec, answering)
    if granted is None:
        unknown.append("not known how many questions there are: planned as requested")
    elif granted != requested:
        unknown.append(
            f"{granted.train:,} + {granted.test:,} questions of {requested.train:,} + {requested.test:,}"
        )
    if model.engine != "openai" and not card_of(answering).parameters:
        unknown.append(f"parameters of {model.name} are taken from the size of its weights")
    wording = sampling.prompt.replace("{question}", "") + (answering.system_prompt or "")
    per_token = rates.prompt.characters_per_token
    return PlanCell(
        model=model,
        dataset=spec.name,
        requested=requested,
        granted=granted or requested,
        n=sampling.n,
        # Cards count the names of classes as part of the question; a judge does not see them.
        question_tokens=max(1, card.question_tokens - round(len(", ".join(card.classes)) / per_token)),
        wording_tokens=len(wording) / per_token,
        answer_tokens=float(min(card.answer_tokens, sampling.max_tokens or card.answer_tokens)),
        image=image,
        judges=_judges(study, study.judge_of(spec.name), granted or requested),
        unknown=tuple(unknown),
    )


def _image(spec: QuestionsSpec, answering: ModelSpec) -> tuple[ImageCost, list[str]]:
    """Return what a typical image of the data set costs the model, and what is not known of it."""
    if not spec.card.image_size:
        return NO_IMAGE, []
    reader = None if answering.engine == "openai" else card_of(answering).image
    if reader is None:
        return NO_IMAGE, [f"an image costs {answering.name} nothing, as its card has no rule of image tokens"]
    width, height = scaled_size(*spec.card.image_size, UNBOUNDED, spec.images.upscale_to)
    bounds = [bound for bound in (spec.images.max_pixels, reader.max_pixels) if bound]
    rule = image_rule(reader.tokens)
    return rule.cost(width, height, min(bounds, default=UNBOUNDED), reader.processor_options), []


def _responses_cell(study: Study, spec: ResponsesSpec) -> PlanCell:
    """Answers that are there: how many is read off the file where that is cheap."""
    rows, unknown = _count_rows(spec), ["not known: the length of its questions and answers"]
    sizes = None
    if rows is None:
        unknown.append("not known: how many response sets it holds, counted when it is read")
    else:
        test = round(rows * spec.test_share)
        sizes = Sizes(rows - test, test)
        unknown.append("not known: its split and its labels, if the file holds any; then no judge is asked")
    if spec.n is None:
        unknown.append(f"not known: answers a question, taken as {study.sampling.n}")
    return PlanCell(
        model=PlanModel(name=spec.model, parameters=None, engine="given"),
        dataset=spec.name,
        requested=None,
        granted=sizes,
        n=spec.n or study.sampling.n,
        sampled_elsewhere=True,
        judges=_judges(study, study.judge_of(spec.name), sizes) if sizes else (),
        unknown=tuple(unknown),
    )


def _count_rows(spec: ResponsesSpec) -> int | None:
    if not spec.path.is_file():
        raise UsageError(f"data set {spec.name!r}: there is no file {spec.path}")
    if spec.path.suffix == ".parquet":
        return row_count(spec.path)
    if spec.path.suffix in {".jsonl", ".json", ".ndjson"}:
        with spec.path.open("rb") as lines:
            return sum(1 for line in lines if line.strip())
    return None


def _judges(study: Study, spec: JudgeSpec, sizes: Sizes) -> tuple[PlanJudge, ...]:
    """Return the judge of each split and the further judges of a sample of the test questions."""
    judges = [(spec.name, spec.model, sizes.total)]
    if spec.test_model:
        judges = [(spec.name, spec.model, sizes.train), (spec.name, spec.test_model, sizes.test)]
    judges += [(entry.judge, entry.model, min(entry.sample, sizes.test)) for entry in spec.agreement]
    return tuple(
        PlanJudge(_model(ModelSpec(name=card)) if card and asks_model(name) else None, questions, spec.guard)
        for name, card, questions in judges
    )
