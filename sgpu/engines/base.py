"""What a text-generation engine must do: sample answers, and say how likely given tokens are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sgpu.models.weights import locate_model
from sgpu.registry import Registry

# Finish reasons of answers that are missing, not wrong: text is empty or cut by the server's filter.
NO_ANSWER = frozenset({"refusal", "content_filter", "no_content"})

Tokens = tuple[int, int]  # of a prompt, of its answers


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How answers are drawn; defaults are the paper's (temperature 1.0, top-p 0.9, top-k 50, N = 20)."""

    n: int = 20
    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 50
    # Explicit, because some checkpoints carry 1.05 in generation_config.json and apply it silently.
    repetition_penalty: float = 1.0
    max_tokens: int = 32
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prompt:
    """One question as the engine sees it: chat messages, the seed of its answers, perhaps an image."""

    messages: tuple[tuple[str, str], ...]  # (role, text)
    seed: int
    image: bytes | None = None


@dataclass(frozen=True)
class Answer:
    """One sampled answer. ``text`` is cleaned (stop string cut, stripped); ``raw_text`` is not.

    ``token_logprobs`` are log-probabilities of the chosen tokens, one per id in ``token_ids``, before
    temperature, top-k and top-p ("raw"): vLLM's ``raw_logprobs``. Empty where the engine gives none.
    """

    text: str
    raw_text: str
    token_ids: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    finish_reason: str

    @property
    def n_tokens(self) -> int:
        return len(self.token_ids) or len(self.token_logprobs)


@dataclass(frozen=True)
class Generation:
    """The answers to one prompt, with the sha256 of the exact rendered prompt."""

    prompt_sha256: str
    answers: tuple[Answer, ...]
    n_prompt_tokens: int = 0


@dataclass(frozen=True)
class EngineConfig:
    """Where the weights are and how the engine is built; made from a model card by `sgpu.study.models`."""

    model: str  # a folder, a hub id, or the served name (openai)
    revision: str | None = None
    dtype: str = "bfloat16"
    max_model_len: int = 1024
    max_num_seqs: int = 320
    tensor_parallel_size: int = 1
    device: str = "auto"  # auto, cpu, cuda
    base_url: str | None = None  # openai only
    api_key_env: str | None = None  # openai only: the NAME of the environment variable
    requests_per_minute: int | None = None  # openai only
    options: dict[str, object] = field(default_factory=dict)
    prompt_form: str | None = None  # the family of `prompt_families` that its chat template must give


def locate_weights(config: EngineConfig) -> EngineConfig:
    """Return the config with the folder of its weights, if this machine has them; see `locate_model`."""
    return replace(config, model=locate_model(config.model, config.revision))


class Engine(Protocol):
    """Built once per actor as ``EngineClass(EngineConfig)``; safe to call many times.

    An engine that needs a package which not every installation has names it as ``package``.
    """

    name: str

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        """``sampling.n`` answers for each prompt, in order; the prompt is prefilled once.

        Raises PromptError, before anything is computed, for prompts that cannot be answered (too long, no
        messages); a ValueError.
        """
        ...

    def next_token_logprobs(self, prompts: Sequence[Prompt], candidates: Sequence[str]) -> list[list[float]]:
        """Log-probability of each candidate as the first token after the rendered prompt.

        Returns one list per prompt, aligned with ``candidates``. A candidate that is not one token for
        this tokenizer, or the same token as an earlier candidate, gets ``-inf``, so that probabilities may
        be added. Used by the LLM judge to read yes and no.
        """
        ...

    def close(self) -> None:
        """Free the weights and end child processes."""
        ...


ENGINES = Registry(
    "engine",
    {
        "vllm": "sgpu.engines.vllm:VLLMEngine",
        "transformers": "sgpu.engines.transformers:TransformersEngine",
        "openai": "sgpu.engines.openai:OpenAIEngine",
    },
    group="sgpu.engines",
)


def clean_answer(raw_text: str, stop: Sequence[str] = ()) -> str:
    """``raw_text`` up to the earliest of the ``stop`` strings, without surrounding white space.

    From what a model wrote to the answer that is judged and embedded; the same rule for every engine.
    """
    ends = [position for mark in stop if mark and (position := raw_text.find(mark)) >= 0]
    return raw_text[: min(ends, default=len(raw_text))].strip()


def has_own_models(engine: str | None) -> bool:
    """Whether an engine knows its models by their names alone: a server does, and the engine of a plug-in.

    No weights of theirs are looked for, and they choose what they compute in.
    """
    return engine == "openai" or bool(engine and ENGINES.plugins(engine))
