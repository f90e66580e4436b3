"""What every stage of every cell does and how long it takes: closed formulas over rates, no measurement.

Reading a token costs 2 x parameters floating-point operations. Generating is bounded by memory and taken as
a rate that falls with the number of parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sgpu.plan.cells import PlanCell, PlanJudge, PlanModel, PlanStudy, Work
from sgpu.plan.image_tokens import ImageCost, image_rule
from sgpu.plan.rates import Rates

UNBOUNDED = 10**12  # pixels
REFERENCE_PARAMETERS = 8.0  # 1e9, of the decoding rates
CPU_REFERENCE = (0.135, 2)  # parameters (1e9) and cores that the CPU rates are for
LARGE_ENCODER = 384  # dimensions, above which an encoder counts as large
A_RULE = "a rule: seconds on a CPU"
LIGHT_GPUS = 0.25  # of a stage without an engine
CPU_RATES = ("cpu.prefill_tokens_per_s", "cpu.decode_tokens_per_s")
COMPUTE = "prefill and decode"
SERVER = "the server"


def estimate(study: PlanStudy, rates: Rates) -> list[Work]:
    """The work of every stage of every cell whose sizes are known, in the order of the pipeline."""
    return [work for cell in study.cells if cell.questions for work in _cell(study, cell, rates)]


def _cell(study: PlanStudy, cell: PlanCell, rates: Rates) -> Iterator[Work]:
    cores = study.cores
    if not cell.sampled_elsewhere:
        yield sampling(cell, rates, cores)
    for judge in cell.judges:
        if judge.questions:
            yield judging(cell, judge, rates, cores)
    for name, dim in cell.encoders:
        yield encoding(cell, name, dim, rates, study.on_cpu, cores)
    if study.entailment:
        yield entailing(cell, study, rates)
    if study.reads_hidden and not cell.sampled_elsewhere and cell.model.engine != "openai":
        yield hidden_pass(cell, rates, cores)


def sampling(cell: PlanCell, rates: Rates, cores: int = 2) -> Work:
    """N answers to every question; hours are 0 where a server or a model of unknown size answers."""
    model = cell.model
    work = Work(
        stage="sample", model=model.name, dataset=cell.dataset, answered_by=model.name,
        calls=float(cell.questions), tokens_in=cell.questions * prompt_tokens(cell, rates),
        tokens_out=cell.answers * cell.answer_tokens,
    )  # fmt: skip
    on_gpus = _transformers_sampling if model.engine == "transformers" else _vllm_sampling
    return _off_gpus(work, model, rates, cores) or on_gpus(work, cell, rates)


def _off_gpus(work: Work, model: PlanModel, rates: Rates, cores: int) -> Work | None:
    """The work of a model that a server runs, of which no size is known, or that is on a CPU; else None."""
    if model.engine == "openai":
        return replace(work, bound=SERVER)
    if model.parameters is None:
        return replace(work, bound="unknown: the model's size")
    if not model.on_cpu:
        return None
    seconds = cpu_seconds(model.parameters, work.tokens_in, work.tokens_out, rates, cores)
    return work.lasting(seconds, COMPUTE, CPU_RATES, start_minutes=rates.cpu.start_minutes.value)


def _transformers_sampling(work: Work, cell: PlanCell, rates: Rates) -> Work:
    parameters, own = cell.model.parameters, rates.transformers
    assert parameters is not None
    seconds = reading_seconds(cell, 0, rates, own.flops_share.value)
    # Each decoding step reads all weights once: the rate falls as they grow.
    seconds += work.tokens_out / (own.decode_tokens_per_s.value * REFERENCE_PARAMETERS / parameters)
    return work.lasting(
        seconds, COMPUTE, ("gpu.peak_flops", "transformers.flops_share", "transformers.decode_tokens_per_s"),
        gpus=1.0, start_minutes=own.start_minutes.value,
    )  # fmt: skip


def _vllm_sampling(work: Work, cell: PlanCell, rates: Rates) -> Work:
    model, vllm = cell.model, rates.vllm
    assert model.parameters is not None
    compute = reading_seconds(cell, 0, rates, vllm.flops_share.value)
    images = cell.questions if image_cost(cell).tokens else 0
    bound, seconds = slowest(
        prefill_and_decode=compute + work.tokens_out / decode_tokens_per_s(model.parameters, rates),
        finished_sequences=model.gpus * cell.answers / vllm.sequences_per_s.value,
        new_images=model.gpus * images / vllm.images_per_s.value,
    )
    used = {
        COMPUTE: ("gpu.peak_flops", "vllm.flops_share", "vllm.decode_tokens_per_s", "vllm.decode_exponent"),
        "finished sequences": ("vllm.sequences_per_s",),
        "new images": ("vllm.images_per_s",),
    }[bound]
    return work.lasting(seconds, bound, used, gpus=float(model.gpus), start_minutes=vllm.start_minutes.value)


def judging(cell: PlanCell, judge: PlanJudge, rates: Rates, cores: int = 2) -> Work:
    """One vote an answer; a language model is asked once for equal answers to one question."""
    votes = float(judge.questions * cell.n)
    work = Work(
        stage="judge", model=judge.title, dataset=cell.dataset, answered_by=cell.model.name,
        part=judge.of, calls=votes,
    )  # fmt: skip
    if judge.model is None:
        return replace(work, on_cpu=True, bound=A_RULE)
    calls = judge.questions * distinct_answers(cell, rates)
    work = replace(work, calls=calls, before_distinct=votes)
    return _yes_no(work, judge.model, judge_prompt_tokens(cell, rates, judge.guarded), rates, cores)


def _yes_no(work: Work, model: PlanModel, tokens: float, rates: Rates, cores: int) -> Work:
    """Prompts of ``tokens`` each, of which only the next token's probabilities are read."""
    writes = model.parameters is None or not model.on_cpu  # a CPU is not charged for the one token
    work = replace(work, tokens_in=work.calls * tokens, tokens_out=work.calls if writes else 0.0)
    if off_gpus := _off_gpus(work, model, rates, cores):
        return off_gpus
    assert model.parameters is not None
    read = work.tokens_in * (1 - rates.judge.prefix_hits.value)
    per_second = prefill_tokens_per_s(
        model.parameters, rates.gpu.peak_flops.value, rates.vllm.flops_share.value
    )
    bound, seconds = slowest(
        prefill=read / per_second,
        finished_sequences=model.gpus * work.calls / rates.vllm.sequences_per_s.value,
    )
    compute = ("gpu.peak_flops", "vllm.flops_share", "judge.prefix_hits")
    used = compute if bound == "prefill" else ("vllm.sequences_per_s",)
    return work.lasting(
        seconds, bound, ("judge.distinct_share", *used), gpus=float(model.gpus),
        start_minutes=rates.vllm.start_minutes.value,
    )  # fmt: skip


def encoding(cell: PlanCell, name: str, dim: int, rates: Rates, on_cpu: bool, cores: int = 2) -> Work:
    """Every distinct answer once."""
    texts = cell.questions * distinct_answers(cell, rates)
    work = Work(
        stage="encode", model=name, dataset=cell.dataset, answered_by=cell.model.name, calls=texts,
        before_distinct=float(cell.answers),
    )  # fmt: skip
    return _encoded(work, texts, dim, rates, on_cpu, cores)


def _encoded(work: Work, texts: float, dim: int, rates: Rates, on_cpu: bool, cores: int) -> Work:
    return work.lasting(
        text_seconds(texts, dim, rates, on_cpu, cores),
        "texts",
        (text_rate(dim, on_cpu), "judge.distinct_share"),
        gpus=0.0 if on_cpu else LIGHT_GPUS,
        start_minutes=rates.cpu.start_minutes.value,
    )


def entailing(cell: PlanCell, study: PlanStudy, rates: Rates) -> Work:
    """Every ordered pair of distinct answers to one question, in all splits of the cell."""
    backend, model, distinct = study.entailment or "", study.entailment_model, distinct_answers(cell, rates)
    work = Work(
        stage="entail", model=model.name if model else backend, dataset=cell.dataset,
        answered_by=cell.model.name, calls=cell.questions * distinct * (distinct - 1),
        before_distinct=float(cell.questions * cell.n * (cell.n - 1)),
    )  # fmt: skip
    if backend == "llm" and model is not None:
        tokens = rates.entailment.wording_tokens.value + cell.question_tokens + 2 * cell.answer_tokens
        return _yes_no(work, model, tokens, rates, study.cores)
    if backend == "cosine":
        texts = cell.questions * distinct
        return _encoded(work, texts, LARGE_ENCODER, rates, study.on_cpu, study.cores)
    if backend == "deberta" and not study.on_cpu:
        return work.lasting(
            work.calls / rates.entailment.pairs_per_s.value, "pairs",
            ("entailment.pairs_per_s", "judge.distinct_share"), gpus=LIGHT_GPUS,
            start_minutes=rates.cpu.start_minutes.value,
        )  # fmt: skip
    return replace(
        work, on_cpu=True, bound=A_RULE if backend == "alias" else "unknown: this backend on a CPU"
    )


def hidden_pass(cell: PlanCell, rates: Rates, cores: int = 2) -> Work:
    """A second pass of the model over each prompt, read once, and all its stored answers."""
    model = cell.model
    work = Work(
        stage="hidden", model=model.name, dataset=cell.dataset, answered_by=model.name,
        calls=float(cell.questions),
        tokens_in=cell.questions * prompt_tokens(cell, rates) + cell.answers * cell.answer_tokens,
    )  # fmt: skip
    if off_gpus := _off_gpus(work, model, rates, cores):
        return off_gpus
    share = rates.transformers.flops_share.value
    return work.lasting(
        reading_seconds(cell, cell.n, rates, share), "prefill",
        ("gpu.peak_flops", "transformers.flops_share"), gpus=1.0,
        start_minutes=rates.transformers.start_minutes.value,
    )  # fmt: skip


def slowest(**seconds: float) -> tuple[str, float]:
    """Which of several bounds that work side by side holds, and its seconds."""
    bound = max(seconds, key=lambda name: seconds[name])
    return bound.replace("_", " "), seconds[bound]


def prefill_tokens_per_s(parameters: float, flops: float, share: float) -> float:
    """Tokens that one GPU reads a second, for ``parameters`` in 1e9."""
    return flops * share / (2 * parameters * 1e9)


def decode_tokens_per_s(parameters: float, rates: Rates) -> float:
    """Tokens that one GPU generates a second in an engine with full batches."""
    vllm = rates.vllm
    return vllm.decode_tokens_per_s.value * (REFERENCE_PARAMETERS / parameters) ** vllm.decode_exponent.value


def image_cost(cell: PlanCell) -> ImageCost:
    """Of one image of the cell; nothing where the cell has none or the model's rule is not known."""
    model = cell.model
    if cell.image is None or model.image_rule is None:
        return ImageCost(0, 0)
    bounds = [bound for bound in (cell.max_pixels, model.max_pixels) if bound]
    rule = image_rule(model.image_rule)
    return rule.cost(*cell.image, min(bounds, default=UNBOUNDED), model.image_options)


def prompt_tokens(cell: PlanCell, rates: Rates) -> float:
    """Question, wording, chat template and image."""
    text = cell.question_tokens + cell.wording_tokens + rates.prompt.chat_tokens.value
    return text + image_cost(cell).tokens


def reading_seconds(cell: PlanCell, answers: int, rates: Rates, share: float) -> float:
    """GPU-seconds to read every prompt of a cell once, with ``answers`` behind it; ``share`` of the peak."""
    parameters, peak = cell.model.parameters, rates.gpu.peak_flops.value
    assert parameters is not None
    tower = image_rule(cell.model.image_rule).tower_parameters if cell.model.image_rule else 0.0
    tokens = prompt_tokens(cell, rates) + answers * cell.answer_tokens
    seconds = tokens / prefill_tokens_per_s(parameters - tower, peak, share)
    if tower:
        seconds += image_cost(cell).patches / prefill_tokens_per_s(tower, peak, share)
    return cell.questions * seconds


def judge_prompt_tokens(cell: PlanCell, rates: Rates, guarded: bool = False) -> float:
    """Wording, question, references and one answer."""
    around = rates.judge.wording_tokens.value + rates.judge.reference_tokens.value
    around += rates.judge.guard_tokens.value if guarded else 0.0
    return around + cell.question_tokens + cell.answer_tokens


def distinct_answers(cell: PlanCell, rates: Rates) -> float:
    """Distinct answers to one question, at least one."""
    return max(1.0, cell.n * rates.judge.distinct_share.value)


def cpu_seconds(parameters: float, tokens_in: float, tokens_out: float, rates: Rates, cores: int) -> float:
    """Seconds of the whole machine; cores are taken to add up."""
    reference, reference_cores = CPU_REFERENCE
    read, wrote = rates.cpu.prefill_tokens_per_s.value, rates.cpu.decode_tokens_per_s.value
    return parameters / reference * reference_cores / cores * (tokens_in / read + tokens_out / wrote)


def text_rate(dim: int, on_cpu: bool) -> str:
    """The name of the rate at which an encoder of ``dim`` dimensions works."""
    if on_cpu:
        return "cpu.texts_per_s"
    return "encoding.texts_per_s" if dim <= LARGE_ENCODER else "encoding.large_texts_per_s"


def text_seconds(texts: float, dim: int, rates: Rates, on_cpu: bool, cores: int) -> float:
    """Seconds of one GPU, or of the whole machine."""
    rate = dict(rates.named())[text_rate(dim, on_cpu)].value
    return texts / rate / (cores / CPU_REFERENCE[1] if on_cpu else 1.0)
