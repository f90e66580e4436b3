"""The rates and prices of a plan, each with where it comes from; all can be replaced by measured ones.

Their names and bounds stand here, their values in rates.yaml beside this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from sgpu.errors import UsageError
from sgpu.study.file import override, read_tree, validated
from sgpu.study.specs import Strict

PREFIX = "rates."
VALUES = Path(__file__).with_name("rates.yaml")
Origin = Literal["measured", "published", "derived", "guess", "given"]


class Rate(Strict):
    """One number; a bare number in a rates file or after --set is one that was "given"."""

    value: float = Field(ge=0, allow_inf_nan=False)
    origin: Origin = "given"
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _bare_number(cls, value: Any) -> Any:
        return {"value": value} if isinstance(value, int | float | str) else value


class Positive(Rate):
    """A rate that something is divided by."""

    value: float = Field(gt=0, allow_inf_nan=False)


class ShareRate(Rate):
    """A part of a whole."""

    value: float = Field(ge=0, le=1, allow_inf_nan=False)


class GpuRates(Strict):
    """The card that all GPU-hours are counted in."""

    peak_flops: Positive
    memory_gib: Positive
    memory_share: ShareRate
    usd_per_gpu_hour: Rate


class VllmRates(Strict):
    """Engines with continuous batching."""

    flops_share: ShareRate
    decode_tokens_per_s: Positive
    decode_exponent: Rate
    sequences_per_s: Positive
    images_per_s: Positive
    start_minutes: Rate


class TransformersRates(Strict):
    """The transformers engine with shared prefill, and passes over stored answers."""

    flops_share: ShareRate
    decode_tokens_per_s: Positive
    start_minutes: Rate


class PromptRates(Strict):
    """What stands around a question."""

    chat_tokens: Rate
    characters_per_token: Positive


class JudgeRates(Strict):
    """A judge that is a language model."""

    distinct_share: ShareRate
    prefix_hits: ShareRate
    wording_tokens: Rate
    guard_tokens: Rate
    reference_tokens: Rate


class EntailmentRates(Strict):
    """Ordered pairs of the distinct answers of one question."""

    pairs_per_s: Positive
    wording_tokens: Rate


class EncodingRates(Strict):
    """Sentence encoders, on distinct answers."""

    texts_per_s: Positive
    large_texts_per_s: Positive


class CpuRates(Strict):
    """Engines on a CPU, for two cores and the embedded model of 0.135e9 parameters."""

    decode_tokens_per_s: Positive
    prefill_tokens_per_s: Positive
    texts_per_s: Positive
    start_minutes: Rate


class Rates(Strict):
    """Every rate that a plan uses."""

    gpu: GpuRates
    vllm: VllmRates
    transformers: TransformersRates
    prompt: PromptRates
    judge: JudgeRates
    entailment: EntailmentRates
    encoding: EncodingRates
    cpu: CpuRates

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
    """The values of rates.yaml, then a YAML file, then ``rates.section.name=value``.

    Raises UsageError that names the file or override, the value and its bound for what cannot be read.
    """
    for setting in overrides:
        if setting.partition("=")[0].count(".") < 2:
            raise UsageError(f"--set {setting!r}: expected rates.SECTION.NAME=VALUE")
    tree = {"rates": read_tree(path, what="rates file") if path else {}}
    override(tree, overrides)
    rates = read_tree(VALUES, what="rates file")
    for name, section in tree["rates"].items():
        rates[name] = {**rates.get(name, {}), **section} if isinstance(section, dict) else section
    return validated(Rates, rates, f"rates of {path or '--set'}")
