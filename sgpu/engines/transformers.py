"""Sampling with transformers, for the models that vLLM does not run; slower, same protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sgpu.engines.base import Answer, EngineConfig, Generation, Prompt, Sampling
from sgpu.engines.clean import clean_answer
from sgpu.engines.pretrained import Pretrained
from sgpu.engines.prompts import RenderedPrompt, candidate_token_ids


class TransformersEngine:
    """Implements `sgpu.engines.base.Engine`.

    Each prompt, with its image, is read once; its cache is then repeated for the N answers. As with vLLM,
    ``token_ids`` and ``token_logprobs`` hold the end-of-sequence token when the model wrote one. All answers
    to a prompt are drawn by one generator, seeded with ``Prompt.seed``, and do not depend on other prompts.
    """

    name = "transformers"

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._checkpoint: Any = Pretrained(config)
        self._model, self._tokenizer = self._checkpoint.model, self._checkpoint.tokenizer
        self._device = self._checkpoint.device
        self._eos = _end_tokens(self._model, self._tokenizer)

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        """See `sgpu.engines.base.Engine.sample`."""
        rendered = self._render(prompts, sampling.max_tokens)
        return [
            self._sample_one(prompt, text, sampling) for prompt, text in zip(prompts, rendered, strict=True)
        ]

    @torch.inference_mode()
    def next_token_logprobs(self, prompts: Sequence[Prompt], candidates: Sequence[str]) -> list[list[float]]:
        """See `sgpu.engines.base.Engine.next_token_logprobs`. Exact, over the whole vocabulary."""
        ids = candidate_token_ids(self._tokenizer, candidates)
        result = []
        for prompt, text in zip(prompts, self._render(prompts, 1), strict=True):
            logits, _, _ = self._prefill(prompt, text)
            logprobs = logits[0].log_softmax(dim=-1).tolist()
            result.append([float("-inf") if token is None else logprobs[token] for token in ids])
        return result

    def close(self) -> None:
        """See `sgpu.engines.base.Engine.close`."""
        self._checkpoint = self._model = None
        if self._device == "cuda":
            torch.cuda.empty_cache()

    def _render(self, prompts: Sequence[Prompt], max_new_tokens: int) -> list[RenderedPrompt]:
        return list(self._checkpoint.render(prompts, max_new_tokens))

    def _prefill(self, prompt: Prompt, text: RenderedPrompt) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Float32 logits (1, V) of the next token, the cache of the prompt, and its token ids (1, T)."""
        inputs = self._checkpoint.inputs(prompt, text)
        output = self._model(**inputs, use_cache=True, logits_to_keep=1)
        return output.logits[:, -1].float(), output.past_key_values, inputs["input_ids"]

    @torch.inference_mode()
    def _sample_one(self, prompt: Prompt, text: RenderedPrompt, sampling: Sampling) -> Generation:
        logits, cache, ids = self._prefill(prompt, text)
        n_prompt_tokens = ids.shape[1]
        cache.batch_repeat_interleave(sampling.n)
        logits, ids = logits.repeat(sampling.n, 1), ids.repeat(sampling.n, 1)
        generator = torch.Generator(self._device).manual_seed(prompt.seed)
        warp = _warpers(sampling)
        drafts = [_Draft() for _ in range(sampling.n)]
        for step in range(sampling.max_tokens):
            chosen = _draw(warp(ids, logits), sampling.temperature, generator)
            logprobs = logits.log_softmax(dim=-1).gather(1, chosen)
            for draft, token, logprob in zip(
                drafts, chosen[:, 0].tolist(), logprobs[:, 0].tolist(), strict=True
            ):
                self._extend(draft, token, logprob, sampling.stop)
            if step + 1 == sampling.max_tokens or all(draft.finished for draft in drafts):
                break
            ids = torch.cat([ids, chosen], dim=1)
            output = self._model(input_ids=chosen, past_key_values=cache, use_cache=True)
            logits, cache = output.logits[:, -1].float(), output.past_key_values
        answers = tuple(self._answer(draft, sampling.stop) for draft in drafts)
        return Generation(text.sha256, answers, n_prompt_tokens)

    def _extend(self, draft: _Draft, token: int, logprob: float, stop: Sequence[str]) -> None:
        if draft.finished:
            return  # the batch goes on for the others
        draft.token_ids.append(token)
        draft.logprobs.append(logprob)
        draft.finished = token in self._eos or bool(stop and _stop_end(self._text(draft), stop))

    def _text(self, draft: _Draft) -> str:
        return str(self._tokenizer.decode(draft.token_ids, skip_special_tokens=True))

    def _answer(self, draft: _Draft, stop: Sequence[str]) -> Answer:
        raw_text = self._text(draft)
        raw_text = raw_text[: _stop_end(raw_text, stop) or len(raw_text)]
        return Answer(
            text=clean_answer(raw_text, stop),
            raw_text=raw_text,
            token_ids=tuple(draft.token_ids),
            token_logprobs=tuple(draft.logprobs),
            finish_reason="stop" if draft.finished else "length",
        )


@dataclass
class _Draft:
    """One answer while it is being written."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finished: bool = False


def _warpers(sampling: Sampling) -> Any:
    """The filters of `generate`, in its order: repetition penalty, temperature, top-k, top-p."""
    from transformers import (
        LogitsProcessorList,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    warpers = LogitsProcessorList()
    if sampling.repetition_penalty != 1.0:
        warpers.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.temperature > 0:
        warpers.append(TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_k > 0:
            warpers.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            warpers.append(TopPLogitsWarper(sampling.top_p))
    return warpers


def _draw(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> torch.Tensor:
    """Token ids (N, 1): the most likely ones at temperature 0, else drawn."""
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    return torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)


def _stop_end(text: str, stop: Sequence[str]) -> int | None:
    """Where the stop string that comes first in ``text`` ends; None if there is none."""
    found = [(position, position + len(mark)) for mark in stop if mark and (position := text.find(mark)) >= 0]
    return min(found)[1] if found else None


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    ids = model.generation_config.eos_token_id
    listed = ids if isinstance(ids, list) else [ids]
    return frozenset(token for token in [*listed, tokenizer.eos_token_id] if token is not None)
