"""The rates and prices of a plan, each with where it comes from; all can be replaced by measured ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from sgpu.errors import UsageError
from sgpu.study.file import override, read_tree, validated
from sgpu.study.specs import Strict

PREFIX = "rates."
Origin = Literal["measured", "published", "derived", "guess", "given"]


class Rate(Strict):
    """One number; a bare number in a rates file or after --set is one that was "given"."""

    value: float = Field(ge=0, allow_inf_nan=False)
    origin: Origin = "given"
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _bare_number(cls, given: Any) -> Any:
        return {"value": given} if isinstance(given, int | float | str) else given


class Positive(Rate):
    """A rate that something is divided by."""

    value: float = Field(gt=0, allow_inf_nan=False)


class Share(Rate):
    """A part of a whole."""

    value: float = Field(ge=0, le=1, allow_inf_nan=False)


def _guess(value: float, note: str = "") -> Positive:
    return Positive(value=value, origin="guess", note=note)


def _published(value: float, note: str) -> Positive:
    return Positive(value=value, origin="published", note=note)


class GpuRates(Strict):
    """The card that all GPU-hours are counted in."""

    peak_flops: Positive = _published(989e12, "H100 SXM, dense bfloat16")
    memory_gib: Positive = _published(80, "H100 SXM")
    memory_share: Share = Share(value=0.9, origin="guess", note="what an engine takes of a GPU's memory")
    usd_per_gpu_hour: Rate = Rate(
        value=3.0, origin="published", note="specialised clouds, 2026: 2.50 to 3.50"
    )


class VllmRates(Strict):
    """Engines with continuous batching."""

    flops_share: Share = Share(
        value=0.4, origin="guess", note="prefill: within 10 % of half of published FP8 figures for 8B and 70B"
    )
    decode_tokens_per_s: Positive = _guess(10_000, "a GPU, a model of 8e9 parameters")
    decode_exponent: Rate = Rate(
        value=0.74, origin="guess", note="decode rate ~ parameters ** -exponent; 3B then gives 18,000"
    )
    sequences_per_s: Positive = _guess(800, "finished sequences of one engine; its CPU work bounds it")
    images_per_s: Positive = _guess(60, "new images of one engine; decoding and resizing bound it")
    start_minutes: Rate = Rate(
        value=3, origin="guess", note="load and warm-up of one engine; 1 to 10 were seen"
    )


class TransformersRates(Strict):
    """The transformers engine with shared prefill, and passes over stored answers."""

    flops_share: Share = Share(value=0.3, origin="guess", note="prompts are read one by one")
    decode_tokens_per_s: Positive = _guess(
        2_150,
        "a GPU, 8e9 parameters, several prompts decoded together; 20 answers at a time: about 700",
    )
    start_minutes: Rate = Rate(value=1.5, origin="guess", note="load of the weights")


class PromptRates(Strict):
    """What stands around a question."""

    chat_tokens: Rate = Rate(value=20, origin="guess", note="roles and marks of a chat template")
    characters_per_token: Positive = _guess(4, "English, for the wording of a prompt form")


class JudgeRates(Strict):
    """A judge that is a language model."""

    distinct_share: Share = Share(
        value=0.35, origin="guess", note="distinct answers of a question; equal ones are sent once"
    )
    prefix_hits: Share = Share(
        value=0.5, origin="guess", note="prompt tokens found in the prefix cache; 0 for a bound from above"
    )
    wording_tokens: Rate = Rate(value=100, origin="guess", note="instruction and chat template")
    guard_tokens: Rate = Rate(value=50, origin="guess", note="marks around an answer and their notice")
    reference_tokens: Rate = Rate(value=18, origin="guess", note="all accepted answers together")


class EntailmentRates(Strict):
    """Ordered pairs of the distinct answers of one question."""

    pairs_per_s: Positive = _guess(4_150, "a GPU, DeBERTa-large in float16")
    wording_tokens: Rate = Rate(
        value=100, origin="guess", note="of an LLM that is asked; both answers come on top"
    )


class EncodingRates(Strict):
    """Sentence encoders, on distinct answers."""

    texts_per_s: Positive = _guess(6_000, "a GPU, MiniLM, short texts")
    large_texts_per_s: Positive = _guess(600, "a GPU, an encoder of more than 384 dimensions")


class CpuRates(Strict):
    """Engines on a CPU, for two cores and the embedded model of 0.135e9 parameters."""

    decode_tokens_per_s: Positive = Positive(
        value=447, origin="measured", note="bench-results/bench.json, sampling stage"
    )
    prefill_tokens_per_s: Positive = _guess(1_000, "prompts")
    texts_per_s: Positive = _guess(150, "encoder")
    start_minutes: Rate = Rate(value=0.5, origin="guess", note="Ray actor and weights")


class Rates(Strict):
    """Every rate that a plan uses."""

    gpu: GpuRates = Field(default_factory=GpuRates)
    vllm: VllmRates = Field(default_factory=VllmRates)
    transformers: TransformersRates = Field(default_factory=TransformersRates)
    prompt: PromptRates = Field(default_factory=PromptRates)
    judge: JudgeRates = Field(default_factory=JudgeRates)
    entailment: EntailmentRates = Field(default_factory=EntailmentRates)
    encoding: EncodingRates = Field(default_factory=EncodingRates)
    cpu: CpuRates = Field(default_factory=CpuRates)

    def named(self) -> Iterator[tuple[str, Rate]]:
        """Every rate as "section.name"."""
        for section in type(self).model_fields:
            for name in type(getattr(self, section)).model_fields:
                yield f"{section}.{name}", getattr(getattr(self, section), name)

    def changed(self, values: dict[str, float]) -> Rates:
        """The same rates with some "section.name" replaced."""
        tree = self.model_dump()
        for name, value in values.items():
            section, _, key = name.partition(".")
            tree[section][key] = {"value": value}
        return Rates.model_validate(tree)


def load_rates(path: Path | None = None, overrides: Sequence[str] = ()) -> Rates:
    """The defaults, then a YAML file, then ``rates.section.name=value``.

    Raises UsageError that names the file or override, the value and its bound for what cannot be read.
    """
    for setting in overrides:
        if setting.partition("=")[0].count(".") < 2:
            raise UsageError(f"--set {setting!r}: expected rates.SECTION.NAME=VALUE")
    tree = {"rates": read_tree(path, what="rates file") if path else {}}
    override(tree, overrides)
    return validated(Rates, tree["rates"], f"rates of {path or '--set'}")
