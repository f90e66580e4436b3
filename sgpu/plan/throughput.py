"""Seconds for tokens, images and texts: closed formulas over rates, no measurement.

Reading a token costs 2 x parameters floating-point operations. Generating is bounded by memory and taken as
a rate that falls with the number of parameters.
"""

from __future__ import annotations

from sgpu.plan.cells import PlanCell
from sgpu.plan.image_tokens import ImageCost, image_rule
from sgpu.plan.rates import Rates

UNBOUNDED = 10**12  # pixels
REFERENCE_PARAMETERS = 8.0  # 1e9, of the decoding rates
CPU_REFERENCE = (0.135, 2)  # parameters (1e9) and cores that the CPU rates are for
LARGE_ENCODER = 384  # dimensions, above which an encoder counts as large


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
