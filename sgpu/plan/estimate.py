"""How much each stage of each cell does and how long it takes: closed formulas over rates, nothing measured.

Reading a token costs 2 x parameters floating-point operations. Generating is bounded by memory and taken as
a rate that falls with the number of parameters. Questions and tokens are those of the cards: no data are
loaded.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sgpu.datasets.response_files import RowFile
from sgpu.encoders.cards import ENCODERS
from sgpu.engines.base import has_own_models
from sgpu.hidden.rows import ModelShape
from sgpu.images import scaled_size
from sgpu.judges.base import asks_model
from sgpu.models.cards import ModelCard
from sgpu.plan.image_tokens import NO_IMAGE, ImageCost, image_rule
from sgpu.plan.rates import Rates
from sgpu.provenance import available_cores
from sgpu.stages.entail import built_from, entailment_model, needs_entailment
from sgpu.stages.hidden import needs_hidden_states, row_bytes, wanted_states
from sgpu.stages.preflight import loaded_cards
from sgpu.study.benchmark import Cell, Study
from sgpu.study.data_specs import QuestionsSpec, ResponsesSpec
from sgpu.study.models import card_of, engine_name
from sgpu.study.specs import ModelSpec

REFERENCE_PARAMETERS = 8.0  # 1e9, of the decoding rates
CPU_PARAMETERS, CPU_CORES = 0.135, 2  # that the CPU rates are for
LARGE_ENCODER = 384  # dimensions, above which an encoder counts as large
LIGHT_GPUS = 0.25  # of a stage without an engine
# Rows of a block on a GPU, as the stages ask for them; pixels and hidden states fill a block sooner.
ENGINE_ROWS, HEAVY_ROWS = 512, 64
SERVER = "the server"  # that holds up a stage, and is given no time


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one stage does for one cell with one engine.

    ``calls`` are prompts, votes, pairs or texts. ``hours`` are of GPUs, of the machine where ``gpus`` is 0.
    ``gpus`` and ``start_minutes`` are those of one actor. ``limit`` names what holds the stage up.
    ``disk_gb`` is what it writes, None if that is not known.
    """

    stage: str
    engine: str
    cell: Cell
    rows: int
    calls: float
    hours: float
    limit: str
    gpus: float = 0.0
    start_minutes: float = 0.0
    block_rows: int = 256
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    disk_gb: float | None = 0.0

    @property
    def pool(self) -> str:
        """The name of the pool that does it, as a run has it."""
        return f"{self.stage.partition(' ')[0]} {self.engine}"

    @property
    def row_minutes(self) -> float:
        """Minutes of one actor for a row."""
        return self.hours * 60 / (self.gpus or 1.0) / self.rows


def estimate(study: Study, rates: Rates) -> tuple[list[Work], list[str]]:
    """Return the work of every stage of every cell, and what is not known of the cells or does not fit.

    Raises UsageError for names that exist nowhere, and DataError for files that cannot be read.
    """
    notes: list[str] = []
    cells = [_Estimator(study, cell, rates, notes) for cell in study.cells()]
    work = [step for cell in cells if cell.questions for step in cell.all_stages()]
    return work, list(dict.fromkeys(notes))


def runs_on_cpu(study: Study) -> bool:
    """Return whether the study is planned on a CPU: one device for all its stages, as a run has it.

    If it does not set one, a CPU is enough if every model comes in a package or is served elsewhere.
    """
    if study.resources.device != "auto":
        return study.resources.device == "cpu"
    return all(card.packaged for card in loaded_cards(study))


class _Estimator:
    """How large one cell is, and the work of its stages."""

    def __init__(self, study: Study, cell: Cell, rates: Rates, notes: list[str]) -> None:
        self.study, self.cell, self.rates, self.on_cpu = study, cell, rates, runs_on_cpu(study)
        self.notes, self.image, self.n = notes, NO_IMAGE, study.sampling_of(cell).n
        # Of response sets, whose texts are not looked at and whose prompts are not asked.
        self.question_tokens, self.answer_tokens, self.prompt_tokens = 20, 12, 0.0
        spec = study.dataset(cell.dataset)
        if isinstance(spec, ResponsesSpec):
            self.train, self.test = self._measure_responses(spec)
        else:
            self.train, self.test = self._measure_questions(spec, study.model(cell.model))
        self.questions = self.train + self.test
        # Equal answers to one question are judged, encoded and compared once.
        self.distinct = max(1.0, self.n * rates.judge.distinct_share)

    def _note(self, what: str) -> None:
        self.notes.append(f"{self.cell.dataset}: {what}.")

    def _measure_responses(self, spec: ResponsesSpec) -> tuple[int, int]:
        """Return the response sets of a file for training and testing."""
        rows = sum(1 for _ in RowFile(spec.path, ["question_id"]))
        taken = "" if spec.n else f"; N is taken as {self.n}"
        self._note(f"the length of its texts, its split and its labels are not known before a run{taken}")
        self.n, test = spec.n or self.n, round(rows * spec.test_share)
        return rows - test, test

    def _measure_questions(self, spec: QuestionsSpec, model: ModelSpec) -> tuple[int, int]:
        """Return the questions for training and testing, as far as they exist, and set their tokens."""
        card, sampling, rates = spec.card, self.study.sampling_of(self.cell), self.rates.prompt
        # Cards count the names of classes as part of the question; a judge does not see them.
        classes = round(len(", ".join(card.classes)) / rates.characters_per_token)
        self.question_tokens = max(1, card.question_tokens - classes)
        self.answer_tokens = min(card.answer_tokens, sampling.max_tokens or card.answer_tokens)
        self.image = self._measure_image(spec, model)
        wording = len(sampling.prompt.replace("{question}", "") + (model.system_prompt or ""))
        self.prompt_tokens = self.question_tokens + rates.chat_tokens + self.image.tokens
        self.prompt_tokens += wording / rates.characters_per_token
        requested = (spec.n_train + (spec.n_validation or 0), spec.n_test)
        pools = {"all": card.hub_rows} if card.hub_rows and not spec.path else card.pools
        train, test = granted = grant_sizes(*requested, pools)
        if not pools:
            self._note("not known how many questions there are: planned as requested")
        elif granted != requested:
            self._note(f"{train:,} + {test:,} questions of {requested[0]:,} + {requested[1]:,}")
        if model.engine != "openai" and not card_of(model).parameters:
            self._note(f"parameters of {model.name} are taken from the size of its weights")
        return granted

    def _measure_image(self, spec: QuestionsSpec, model: ModelSpec) -> ImageCost:
        """Return what a typical image of the data set costs the model."""
        size, reader = spec.card.image_size, None if model.engine == "openai" else card_of(model).image
        if size and not reader:
            self._note(f"an image costs {model.name} nothing, as its card has no rule of image tokens")
        if not size or not reader:
            return NO_IMAGE
        size = scaled_size(*size, sys.maxsize, spec.images.upscale_to)
        max_pixels = min(spec.images.max_pixels or sys.maxsize, reader.max_pixels)
        return image_rule(reader.tokens).cost(*size, max_pixels, reader.processor_options)

    def all_stages(self) -> Iterator[Work]:
        study, cell = self.study, self.cell
        model = study.model(cell.model) if self.prompt_tokens else None
        if model:
            engine = engine_name(model)
            yield self._ask("sample", model, engine, self.questions, self.prompt_tokens, self.n)
        yield from self._judge()
        for name in dict.fromkeys([study.encoder.name, *study.sensitivity_of(cell).encoders]):
            yield self._embed("encode", name, self.questions * self.distinct)
        if needs_entailment(study):
            yield self._entail()
        if model and needs_hidden_states(study) and not has_own_models(engine_name(model)):
            # A second pass over each prompt, read once, and all its stored answers.
            tokens, shape = self.prompt_tokens + self.n * self.answer_tokens, card_of(model).shape
            size = (
                shape and row_bytes(wanted_states(study, ModelShape(*shape), self.n)) * self.questions / 1e9
            )
            yield replace(self._ask("hidden", model, "transformers", self.questions, tokens), disk_gb=size)

    def _judge(self) -> Iterator[Work]:
        """Yield the work of each judge: one call for equal answers to one question."""
        rates, spec = self.rates.judge, self.study.judge_of(self.cell.dataset)
        judges = [(spec.name, spec.model, self.questions)]
        if spec.test_model:
            judges = [(spec.name, spec.model, self.train), (spec.name, spec.test_model, self.test)]
        judges += [(other.judge, other.model, min(other.sample, self.test)) for other in spec.agreement]
        tokens = rates.wording_tokens + rates.reference_tokens + spec.guard * rates.guard_tokens
        tokens += self.question_tokens + self.answer_tokens
        for name, model, rows in judges:
            calls = rows * self.distinct
            if model and asks_model(name):
                work = self._ask("judge", ModelSpec(name=model), "vllm", calls, tokens)
            else:
                work = self._time("judge", "rule", calls, {"": 0.0})
            if rows:
                yield replace(work, rows=rows)

    def _embed(self, stage: str, encoder: str, calls: float) -> Work:
        """Return the work of a stage that embeds every distinct answer once."""
        large = encoder in ENCODERS and ENCODERS.get(encoder).dim > LARGE_ENCODER
        rate = self.rates.encoding.large_texts_per_s if large else self.rates.encoding.texts_per_s
        if self.on_cpu:
            rate = self.rates.cpu.texts_per_s * available_cores() / CPU_CORES
        limits = {"texts": self.questions * self.distinct / rate}
        return self._time(stage, encoder, calls, limits)

    def _entail(self) -> Work:
        """Return the work of comparing every ordered pair of distinct answers to one question."""
        spec, rates = self.study.entailment, self.rates.entailment
        built, model = built_from(self.study), entailment_model(self.study)
        pairs = self.questions * self.distinct * (self.distinct - 1)
        if built == "encoder" and model:  # whose embeddings are compared
            return self._embed("entail by cosine" if spec.threshold is None else "entail", model, pairs)
        if built == "engine" and model:
            tokens = rates.wording_tokens + self.question_tokens + 2 * self.answer_tokens
            return self._ask("entail", ModelSpec(name=model), "vllm", pairs, tokens)
        limits = {"pairs": pairs / rates.pairs_per_s} if built == "checkpoint" else {"": 0.0}
        if built == "checkpoint" and self.on_cpu:
            limits = {"no rate for this backend on a CPU": 0.0}
        return self._time("entail", spec.backend, pairs, limits, block_rows=HEAVY_ROWS)

    def _ask(
        self, stage: str, model: ModelSpec, engine: str, calls: float, tokens: float, n: int = 0
    ) -> Work:
        """Return the work of a language model on prompts of so many tokens, with ``n`` answers to each."""
        card, rates, gpu, cpu = card_of(model), self.rates, self.rates.gpu, self.rates.cpu
        own, gpus = rates.vllm, card.tensor_parallel_size
        if engine == "transformers":
            own, gpus = rates.transformers, 1
        # Prompts about answers have no image, and their beginnings in common.
        about_answers = stage in {"judge", "entail"}
        image, cached = (NO_IMAGE, rates.judge.prefix_hits) if about_answers else (self.image, 0.0)
        read, written = calls * tokens, calls * n * self.answer_tokens
        parameters, served = count_parameters(card), model.engine == "openai"
        if served or not parameters:
            limits = {SERVER if served else "the model's size is unknown": 0.0}
        elif self.on_cpu:
            seconds = read / cpu.prefill_tokens_per_s + written / cpu.decode_tokens_per_s
            limits = {"compute": seconds * parameters / CPU_PARAMETERS * CPU_CORES / available_cores()}
        else:
            tower = image_rule(card.image.tokens).tower_parameters if card.image else 0.0
            flops = 2e9 * (read * (1 - cached) * (parameters - tower) + calls * image.patches * tower)
            decode = own.decode_tokens_per_s * (REFERENCE_PARAMETERS / parameters) ** own.decode_exponent
            images, sequences = calls * bool(image.tokens), calls * max(1, n)
            limits = {
                "compute": flops / (gpu.peak_flops * own.flops_share) + written / decode,
                "finished sequences": gpus * sequences / (own.sequences_per_s or math.inf),
                "new images": gpus * images / (own.images_per_s or math.inf),
            }
            if card.memory_gib > gpus * gpu.memory_gib * gpu.memory_share:
                weights = f"{card.memory_gib / gpus:.0f} GiB of weights a GPU"
                what = f"{weights} do not fit into {gpu.memory_gib:g} GiB"
                self.notes.append(f"{stage} {model.name}: {what}: raise tensor_parallel_size of the card.")
        block_rows = HEAVY_ROWS if image.tokens or stage == "hidden" else ENGINE_ROWS
        return self._time(
            stage, model.name, calls, limits, gpus=gpus, start_minutes=own.start_minutes,
            block_rows=block_rows, tokens_in=read, tokens_out=written,
        )  # fmt: skip

    def _time(self, stage: str, engine: str, calls: float, limits: Mapping[str, float], **facts: Any) -> Work:
        """Return the work with the time of the slowest of its limits, in seconds of GPUs or the machine."""
        limit = max(limits, key=lambda name: limits[name])
        facts = {"gpus": LIGHT_GPUS, "start_minutes": self.rates.cpu.start_minutes, **facts}
        if limit and not limits[limit]:
            self.notes.append(f"{stage} {engine}: no time is planned: {limit}.")
        if self.on_cpu or not limits[limit]:
            facts |= {"gpus": 0.0, "start_minutes": self.rates.cpu.start_minutes}
        facts |= {"rows": self.questions, "limit": limit, "hours": limits[limit] / 3600}
        return Work(stage=stage, engine=engine, cell=self.cell, calls=calls, **facts)


def count_parameters(card: ModelCard) -> float:
    """Return a model's parameters in 1e9, by the size of its weights if its card has none; 0 if unknown."""
    bytes_each = 4 if card.dtype == "float32" else 2
    return card.parameters or card.memory_gib * 2**30 / bytes_each / 1e9


def grant_sizes(train: int, test: int, pools: Mapping[str, int]) -> tuple[int, int]:
    """Apply the rule of `sgpu.datasets.split` to counts: test is filled first; all is granted without pools.

    An upper bound where groups of several rows stand at the cut.
    """
    if not pools:
        return train, test
    test = min(test, pools.get("all", pools.get("test", 0)))
    return min(train, pools["all"] - test if "all" in pools else pools.get("train", 0)), test
