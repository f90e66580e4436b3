"""Answers of a local model while they are being written: draws, stop strings and end tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sgpu.engines.base import Answer, Generation, Sampling
from sgpu.engines.clean import clean_answer


@dataclass
class _Draft:
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finished: bool = False


class Drafts:
    """The N answers to one prompt, drawn by its own generator. ``ids`` (1, T) are its tokens."""

    def __init__(
        self, ids: torch.Tensor, seed: int, sampling: Sampling, tokenizer: Any, end_tokens: frozenset[int]
    ) -> None:
        self.n_prompt_tokens = ids.shape[1]
        self._ids = ids.repeat(sampling.n, 1)
        self._generator = torch.Generator(ids.device).manual_seed(seed)
        self._temperature, self._stop = sampling.temperature, sampling.stop
        self._warp = _warpers(sampling)
        self._tokenizer, self._end_tokens = tokenizer, end_tokens
        self._drafts = [_Draft() for _ in range(sampling.n)]

    @property
    def finished(self) -> bool:
        return all(draft.finished for draft in self._drafts)

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """The next token (N, 1) of every answer, finished or not, from its ``logits`` (N, V)."""
        warped = self._warp(self._ids, logits)
        if self._temperature == 0:
            chosen = warped.argmax(dim=-1, keepdim=True)
        else:
            chosen = torch.multinomial(warped.softmax(dim=-1), 1, generator=self._generator)
        self._ids = torch.cat([self._ids, chosen], dim=1)
        return chosen

    def extend(self, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        """Add what was drawn to the answers that are not finished."""
        for draft, token, logprob in zip(self._drafts, tokens, logprobs, strict=True):
            if draft.finished:
                continue
            draft.token_ids.append(token)
            draft.logprobs.append(logprob)
            draft.finished = token in self._end_tokens or bool(
                self._stop and _stop_end(self._text(draft), self._stop)
            )

    def generation(self, prompt_sha256: str) -> Generation:
        answers = tuple(self._answer(draft) for draft in self._drafts)
        return Generation(prompt_sha256, answers, self.n_prompt_tokens)

    def _text(self, draft: _Draft) -> str:
        return str(self._tokenizer.decode(draft.token_ids, skip_special_tokens=True))

    def _answer(self, draft: _Draft) -> Answer:
        raw_text = self._text(draft)
        raw_text = raw_text[: _stop_end(raw_text, self._stop) or len(raw_text)]
        return Answer(
            text=clean_answer(raw_text, self._stop),
            raw_text=raw_text,
            token_ids=tuple(draft.token_ids),
            token_logprobs=tuple(draft.logprobs),
            finish_reason="stop" if draft.finished else "length",
        )


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


def _stop_end(text: str, stop: Sequence[str]) -> int | None:
    """Where the stop string that comes first in ``text`` ends; None if there is none."""
    found = [(position, position + len(mark)) for mark in stop if mark and (position := text.find(mark)) >= 0]
    return min(found)[1] if found else None
