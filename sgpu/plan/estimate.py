"""How much each stage of each cell does and how long it takes: closed formulas over rates, nothing measured.

Reading a token costs 2 x parameters floating-point operations. Generating is bounded by memory and taken as
a rate that falls with the number of parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sgpu.plan.cells import PlanCell, PlanJudge, PlanModel, PlanStudy, Work
from sgpu.plan.rates import Rates

REFERENCE_PARAMETERS = 8.0  # 1e9, of the decoding rates
CPU_REFERENCE = (0.135, 2)  # parameters (1e9) and cores that the CPU rates are for
LARGE_ENCODER = 384  # dimensions, above which an encoder counts as large
LIGHT_GPUS = 0.25  # of a stage without an engine
# Rows of a block on a GPU, as the stages ask for them; pixels and hidden states fill a block sooner.
ENGINE_ROWS, HEAVY_ROWS = 512, 64
COMPUTE, SEQUENCES, IMAGES = "prefill and decode", "finished sequences", "new images"
SERVER, UNKNOWN_SIZE = "the server", "the model's size is unknown"


def estimate(study: PlanStudy, rates: Rates) -> list[Work]:
    """Return the work of every stage of every cell whose sizes are known."""
    return [
        work for cell in study.cells if cell.questions for work in _Estimator(study, cell, rates).all_stages()
    ]


class _Estimator:
    """The work of one cell."""

    def __init__(self, study: PlanStudy, cell: PlanCell, rates: Rates) -> None:
        self._study, self._cell, self._rates = study, cell, rates
        # Equal answers to one question are judged, encoded and compared once.
        self._distinct = max(1.0, cell.n * rates.judge.distinct_share)
        self._prompt = prompt_tokens(cell, rates)

    def all_stages(self) -> Iterator[Work]:
        cell, study = self._cell, self._study
        if not cell.sampled_elsewhere:
            yield self._sample()
        yield from (self._judge(judge) for judge in cell.judges if judge.questions)
        yield from (self._encode(name, dim) for name, dim in cell.encoders)
        if study.entailment:
            yield self._entail(study.entailment, study.entailment_model)
        if study.reads_hidden and not cell.sampled_elsewhere and cell.model.engine != "openai":
            yield self._read_hidden()

    def _work(self, stage: str, engine: str, calls: float, **facts: float) -> Work:
        cell = self._cell
        return Work(
            stage=stage, engine=engine, answered_by=cell.model.name, dataset=cell.dataset, calls=calls,
            rows=int(facts.pop("rows", cell.questions)), **facts,  # type: ignore[arg-type]
        )  # fmt: skip

    def _sample(self) -> Work:
        """N answers to every question."""
        cell, model, rates = self._cell, self._cell.model, self._rates
        work = self._work(
            "sample", model.name, cell.questions,
            tokens_in=cell.questions * self._prompt, tokens_out=cell.answers * cell.answer_tokens,
            block_rows=HEAVY_ROWS if cell.image.tokens else ENGINE_ROWS,
        )  # fmt: skip
        if model.parameters is None or self._study.on_cpu:
            return self._time_off_gpus(work, model)
        if model.engine == "transformers":
            own = rates.transformers
            # Each decoding step reads all weights once: the rate falls as they grow.
            rate = own.decode_tokens_per_s * REFERENCE_PARAMETERS / model.parameters
            seconds = reading_seconds(cell, 0, rates, own.flops_share) + work.tokens_out / rate
            return _time(work, 1, own.start_minutes, {COMPUTE: seconds})
        vllm = rates.vllm
        limits = {
            COMPUTE: reading_seconds(cell, 0, rates, vllm.flops_share)
            + work.tokens_out / decode_tokens_per_s(model.parameters, rates),
            SEQUENCES: model.gpus * cell.answers / vllm.sequences_per_s,
            IMAGES: model.gpus * (cell.questions if cell.image.tokens else 0) / vllm.images_per_s,
        }
        return _time(work, model.gpus, vllm.start_minutes, limits)

    def _judge(self, judge: PlanJudge) -> Work:
        """One vote an answer; a language model is asked once for equal answers to one question."""
        cell, rates = self._cell, self._rates.judge
        name, calls = judge.model.name if judge.model else "rule", judge.questions * self._distinct
        work = self._work("judge", name, calls, rows=judge.questions, block_rows=ENGINE_ROWS)
        if judge.model is None:
            return work
        tokens = rates.wording_tokens + rates.reference_tokens + judge.guarded * rates.guard_tokens
        return self._ask_yes_no(work, judge.model, tokens + cell.question_tokens + cell.answer_tokens)

    def _encode(self, name: str, dim: int) -> Work:
        """Every distinct answer once."""
        return self._time_texts(self._work("encode", name, self._cell.questions * self._distinct), dim)

    def _entail(self, backend: str, model: PlanModel | None) -> Work:
        """Every ordered pair of distinct answers to one question; cosine compares their embeddings."""
        cell, rates = self._cell, self._rates
        pairs = cell.questions * self._distinct * (self._distinct - 1)
        encoder, dim = cell.encoders[0]
        if backend == "cosine":
            stage = "entail by cosine" if self._study.fits_threshold else "entail"
            return self._time_texts(self._work(stage, encoder, pairs), dim)
        work = self._work("entail", model.name if model else backend, pairs, block_rows=HEAVY_ROWS)
        if backend == "llm" and model:
            tokens = rates.entailment.wording_tokens + cell.question_tokens + 2 * cell.answer_tokens
            return self._ask_yes_no(replace(work, block_rows=ENGINE_ROWS), model, tokens)
        if backend == "deberta" and not self._study.on_cpu:
            seconds = pairs / rates.entailment.pairs_per_s
            return _time(work, LIGHT_GPUS, rates.cpu.start_minutes, {"pairs": seconds})
        return replace(work, limit="" if backend == "alias" else "no rate for this backend on a CPU")

    def _read_hidden(self) -> Work:
        """A second pass of the model over each prompt, read once, and all its stored answers."""
        cell, model, rates = self._cell, self._cell.model, self._rates
        tokens = cell.questions * self._prompt + cell.answers * cell.answer_tokens
        work = self._work("hidden", model.name, cell.questions, tokens_in=tokens, block_rows=HEAVY_ROWS)
        if model.parameters is None or self._study.on_cpu:
            return self._time_off_gpus(work, model)
        seconds = reading_seconds(cell, cell.n, rates, rates.transformers.flops_share)
        return _time(work, 1, rates.transformers.start_minutes, {"prefill": seconds})

    def _ask_yes_no(self, work: Work, model: PlanModel, tokens: float) -> Work:
        """Prompts of ``tokens`` each, of which only the next token's probabilities are read."""
        # A CPU is not charged for the one token.
        written = 0.0 if self._study.on_cpu and model.parameters else work.calls
        work = replace(work, tokens_in=work.calls * tokens, tokens_out=written)
        if model.parameters is None or self._study.on_cpu:
            return self._time_off_gpus(work, model)
        rates = self._rates
        rate = prefill_tokens_per_s(model.parameters, rates.gpu.peak_flops, rates.vllm.flops_share)
        limits = {
            "prefill": work.tokens_in * (1 - rates.judge.prefix_hits) / rate,
            SEQUENCES: model.gpus * work.calls / rates.vllm.sequences_per_s,
        }
        return _time(work, model.gpus, rates.vllm.start_minutes, limits)

    def _time_off_gpus(self, work: Work, model: PlanModel) -> Work:
        """Time a model on the cores, which add up; one of a server or of unknown size is not timed."""
        if model.parameters is None:
            return replace(work, limit=SERVER if model.engine == "openai" else UNKNOWN_SIZE)
        cpu, (parameters, cores) = self._rates.cpu, CPU_REFERENCE
        seconds = work.tokens_in / cpu.prefill_tokens_per_s + work.tokens_out / cpu.decode_tokens_per_s
        seconds *= model.parameters / parameters * cores / self._study.cores
        return _time(work, 0, cpu.start_minutes, {COMPUTE: seconds})

    def _time_texts(self, work: Work, dim: int) -> Work:
        rates, study, texts = self._rates, self._study, self._cell.questions * self._distinct
        own = rates.encoding
        rate = own.texts_per_s if dim <= LARGE_ENCODER else own.large_texts_per_s
        if study.on_cpu:
            rate = rates.cpu.texts_per_s * study.cores / CPU_REFERENCE[1]
        gpus = 0 if study.on_cpu else LIGHT_GPUS
        return _time(work, gpus, rates.cpu.start_minutes, {"texts": texts / rate})


def _time(work: Work, gpus: float, start_minutes: float, limits: dict[str, float]) -> Work:
    """Return the work with the time of the slowest of several limits in GPU-seconds."""
    limit = max(limits, key=lambda name: limits[name])
    return replace(work, hours=limits[limit] / 3600, limit=limit, gpus=gpus, start_minutes=start_minutes)


def prefill_tokens_per_s(parameters: float, flops: float, share: float) -> float:
    """Return how many tokens one GPU reads a second, for ``parameters`` in 1e9."""
    return flops * share / (2 * parameters * 1e9)


def decode_tokens_per_s(parameters: float, rates: Rates) -> float:
    """Return how many tokens one GPU generates a second in an engine with full batches."""
    return rates.vllm.decode_tokens_per_s * (REFERENCE_PARAMETERS / parameters) ** rates.vllm.decode_exponent


def prompt_tokens(cell: PlanCell, rates: Rates) -> float:
    """Return the tokens of question, wording, chat template and image."""
    return cell.question_tokens + cell.wording_tokens + rates.prompt.chat_tokens + cell.image.tokens


def reading_seconds(cell: PlanCell, answers: int, rates: Rates, share: float) -> float:
    """Return GPU-seconds to read a cell's prompts and ``answers`` behind each; ``share`` of the peak."""
    peak, tower = rates.gpu.peak_flops, cell.model.tower_parameters
    tokens = prompt_tokens(cell, rates) + answers * cell.answer_tokens
    seconds = tokens / prefill_tokens_per_s((cell.model.parameters or 0.0) - tower, peak, share)
    if tower:
        seconds += cell.image.patches / prefill_tokens_per_s(tower, peak, share)
    return cell.questions * seconds
