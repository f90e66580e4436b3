"""The rates and prices of a plan; rates.yaml beside this file has their values and origins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from sgpu.errors import UsageError
from sgpu.runtime.runner import PoolRecord
from sgpu.study.file import override, read_tree, validated
from sgpu.study.specs import Strict

PREFIX = "rates."
VALUES = Path(__file__).with_name("rates.yaml")
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class GpuRates(Strict):
    """The card that all GPU-hours are counted in."""

    peak_flops: Positive
    memory_gib: Positive
    memory_share: Share
    usd_per_gpu_hour: Amount


class EngineRates(Strict):
    """A language model's engine; one without the two rates of its own CPU work is not held up by it."""

    flops_share: Share
    decode_tokens_per_s: Positive
    decode_exponent: Amount
    start_minutes: Amount
    sequences_per_s: Positive | None = None
    images_per_s: Positive | None = None


class PromptRates(Strict):
    """What stands around a question."""

    chat_tokens: Amount
    characters_per_token: Positive


class JudgeRates(Strict):
    """A judge that is a language model."""

    distinct_share: Share
    prefix_hits: Share
    wording_tokens: Amount
    guard_tokens: Amount
    reference_tokens: Amount


class EntailmentRates(Strict):
    """Ordered pairs of the distinct answers of one question."""

    pairs_per_s: Positive
    wording_tokens: Amount


class EncodingRates(Strict):
    """Sentence encoders, on distinct answers."""

    texts_per_s: Positive
    large_texts_per_s: Positive


class CpuRates(Strict):
    """Engines on a CPU, for two cores and the embedded model of 0.135e9 parameters."""

    decode_tokens_per_s: Positive
    prefill_tokens_per_s: Positive
    texts_per_s: Positive
    start_minutes: Amount


class Rates(Strict):
    """Every rate that a plan uses; ``pools`` that a run has measured count before the others."""

    gpu: GpuRates
    vllm: EngineRates
    transformers: EngineRates
    prompt: PromptRates
    judge: JudgeRates
    entailment: EntailmentRates
    encoding: EncodingRates
    cpu: CpuRates
    pools: list[PoolRecord] = Field(default_factory=list)

    @field_validator("pools")
    @classmethod
    def _not_negative(cls, pools: list[PoolRecord]) -> list[PoolRecord]:
        for place, pool in enumerate(pools):
            for name, value in vars(pool).items():
                if isinstance(value, float | int) and not 0 <= value < math.inf:
                    raise ValueError(f"pools.{place}.{name} must be at least 0 and finite (got {value})")
        return pools


def load_rates(path: Path | None = None, overrides: Sequence[str] = ()) -> Rates:
    """Return the values of rates.yaml, then of a file, then of the overrides ``rates.section.name=value``.

    The file is YAML in the form of rates.yaml, or the run.json of a finished study.

    Raises UsageError that names the file or override, the value and its bound for what cannot be read.
    """
    given = read_tree(path, what="rates file") if path else {}
    if path and path.suffix == ".json":
        if "pools" not in given:
            raise UsageError(f"{path} has no `pools`: give the run.json of a finished run, or rates in YAML")
        given = {"pools": given["pools"]}
    tree = {"rates": given}
    override(tree, [setting for setting in overrides if setting.startswith(PREFIX)])
    rates = read_tree(VALUES, what="rates file")
    for name, section in tree["rates"].items():
        rates[name] = {**rates.get(name, {}), **section} if isinstance(section, dict) else section
    return validated(Rates, _strip_origins(rates), f"rates of {path or '--set'}")


def _strip_origins(tree: Any) -> Any:
    """Return the tree with each ``{value: 3, origin: ..., note: ...}`` as its bare value."""
    if not isinstance(tree, dict):
        return tree
    return tree["value"] if "value" in tree else {key: _strip_origins(part) for key, part in tree.items()}
