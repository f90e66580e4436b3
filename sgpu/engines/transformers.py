"""Sampling with transformers, for the models that vLLM does not run; slower, same protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sgpu.engines.base import Answer, EngineConfig, Generation, Prompt, Sampling, clean_answer
from sgpu.engines.merged_cache import (
    MergedCache,
    NextPosition,
    ReadPrompt,
    cache_budget,
    groups,
    prompts_together,
)
from sgpu.engines.pretrained import Pretrained
from sgpu.engines.prompts import RenderedPrompt, candidate_token_ids


class TransformersEngine:
    """Samples with Hugging Face transformers, on a CPU or a GPU; see `sgpu.engines.base.Engine`.

    Each prompt, with its image, is read once, by itself. Its cache is repeated for the N answers, and several
    prompts are continued in one batch: at most ``options["prompts_together"]`` (8 on CUDA, 2 elsewhere), and
    as many as memory allows. Models with sliding windows, linear attention or learned positions get one
    prompt at a time.

    All answers to a prompt are drawn by one generator, seeded with ``Prompt.seed``. The order of the prompts
    of a call does not matter. Which prompts a call holds changes the last bits of the logits, and now and
    then a word: answers are to be stored, not drawn again. With ``prompts_together`` 1 it changes nothing.

    As with vLLM, ``token_ids`` and ``token_logprobs`` hold the end-of-sequence token when the model wrote
    one.
    """

    name = "transformers"
    package = "transformers"

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._checkpoint: Any = Pretrained(config)
        self._model, self._tokenizer = self._checkpoint.model, self._checkpoint.tokenizer
        self._device = self._checkpoint.device
        self._eos = _end_tokens(self._model, self._tokenizer)
        self._together = prompts_together(config, self._device)
        self._next_position = NextPosition(self._model) if self._together > 1 else None

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        """See `sgpu.engines.base.Engine.sample`."""
        rendered: list[RenderedPrompt] = self._checkpoint.render(prompts, sampling.max_tokens)

        def order_key(number: int) -> tuple[bool, int, str, int]:
            text = rendered[number]
            return prompts[number].image is None, len(text.token_ids), text.sha256, prompts[number].seed

        def read() -> Iterator[tuple[int, ReadPrompt]]:
            # Like lengths together need little padding. The rest of the key makes the groups those of any
            # other order of the same prompts.
            for number in sorted(range(len(prompts)), key=order_key):
                yield number, self._prefill(rendered[number])

        generations: dict[int, Generation] = {}
        budget = cache_budget(self._device)
        for group in groups(read(), self._together, budget, sampling):
            seeds = [prompts[number].seed for number, _ in group]
            drafts = self._write([prompt for _, prompt in group], seeds, sampling)
            for (number, _), draft in zip(group, drafts, strict=True):
                generations[number] = draft.generation(rendered[number].sha256)
        return [generations[number] for number in range(len(prompts))]

    def next_token_logprobs(self, prompts: Sequence[Prompt], candidates: Sequence[str]) -> list[list[float]]:
        """See `sgpu.engines.base.Engine.next_token_logprobs`. Exact, over the whole vocabulary."""
        ids = candidate_token_ids(self._tokenizer, candidates)
        result = []
        for text in self._checkpoint.render(prompts, 1):
            logprobs = self._prefill(text).logits[0].log_softmax(dim=-1).tolist()
            result.append([float("-inf") if token is None else logprobs[token] for token in ids])
        return result

    def close(self) -> None:
        """See `sgpu.engines.base.Engine.close`."""
        self._checkpoint = self._model = self._next_position = None
        if self._device == "cuda":
            torch.cuda.empty_cache()

    @torch.inference_mode()
    def _prefill(self, text: RenderedPrompt) -> ReadPrompt:
        inputs = self._checkpoint.inputs(text)
        output = self._model(**inputs, use_cache=True, logits_to_keep=1)
        read = ReadPrompt(output.logits[:, -1].float(), output.past_key_values, inputs["input_ids"])
        if self._next_position is not None:
            read.next_position = self._next_position.after(read.cache, read.n_tokens)
        return read

    @torch.inference_mode()
    def _write(self, prompts: Sequence[ReadPrompt], seeds: Sequence[int], sampling: Sampling) -> list[Drafts]:
        """The finished answers to prompts that are continued together."""
        n = sampling.n
        drafts = [
            Drafts(prompt.ids, seed, sampling, self._tokenizer, self._eos)
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        open_ = drafts
        logits = torch.cat([prompt.logits for prompt in prompts]).repeat_interleave(n, dim=0)
        cache = MergedCache(prompts, n, sampling.max_tokens)
        for step in range(sampling.max_tokens):
            chosen = torch.cat([draft.draw(rows) for draft, rows in zip(open_, logits.split(n), strict=True)])
            logprobs = logits.log_softmax(dim=-1).gather(1, chosen)[:, 0].tolist()
            tokens = chosen[:, 0].tolist()
            for index, draft in enumerate(open_):
                draft.extend(tokens[index * n : (index + 1) * n], logprobs[index * n : (index + 1) * n])
            unfinished = [index for index, draft in enumerate(open_) if not draft.finished]
            if step + 1 == sampling.max_tokens or not unfinished:
                break
            if len(unfinished) < len(open_):
                open_ = [open_[index] for index in unfinished]
                chosen = cache.keep(unfinished, chosen)
            logits = cache.step(self._model, chosen)
        return drafts


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    ids = model.generation_config.eos_token_id
    listed = ids if isinstance(ids, list) else [ids]
    return frozenset(token for token in [*listed, tokenizer.eos_token_id] if token is not None)


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
    from transformers.generation import logits_process as filters

    warpers = filters.LogitsProcessorList()
    if sampling.repetition_penalty != 1.0:
        warpers.append(filters.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.temperature > 0:
        warpers.append(filters.TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_k > 0:
            warpers.append(filters.TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            warpers.append(filters.TopPLogitsWarper(sampling.top_p))
    return warpers


def _stop_end(text: str, stop: Sequence[str]) -> int | None:
    """Where the stop string that comes first in ``text`` ends; None if there is none."""
    ends = [(position, position + len(mark)) for mark in stop if mark and (position := text.find(mark)) >= 0]
    return min(ends)[1] if ends else None
