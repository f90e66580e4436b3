"""Hidden states of given answers: one forward pass over the prompt, one over its answers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from sgpu.engines.base import EngineConfig, Prompt, clean_answer
from sgpu.engines.pretrained import Pretrained
from sgpu.engines.prompts import RenderedPrompt
from sgpu.hidden.rows import AnswerStates, Halves
from sgpu.probes.states import token_index


@dataclass(frozen=True)
class AnswerTokens:
    """Which of an answer's tokens are read after the prompt, and where its states stand among them.

    -1 as a place is the last token of the prompt.
    """

    tokens: tuple[int, ...]
    last: int
    slt: int


def answer_tokens(
    token_ids: Sequence[int], decode: Callable[[Sequence[int]], str], stop: Sequence[str]
) -> AnswerTokens | None:
    """None for an answer without any text: it has no last token.

    What was sampled ends in an end-of-sequence token, in a stop string, or where the length was used up.
    ``last`` is the last token that the cleaned answer needs; ``slt`` is `sgpu.probes.states`' second-last
    generated token. ``decode`` leaves special tokens out.
    """
    text = clean_answer(decode(token_ids), stop)
    if not text:
        return None
    end = len(token_ids)
    while end > 1 and clean_answer(decode(token_ids[: end - 1]), stop) == text:
        end -= 1
    slt = token_index("slt", 1, len(token_ids)) - 1
    return AnswerTokens(tuple(token_ids[: max(end, slt + 1)]), end - 1, slt)


HALF_MAX = float(np.finfo(np.float16).max)
# Answer tokens in one forward pass, padding included; the prompt's cache is repeated for every answer.
TOKEN_BUDGET = {"cpu": 2048, "cuda": 16384}


class HiddenStateExtractor:
    """Holds one model; computes in its dtype, returns float16.

    The prompt, with its image, is read once, and what a text shares with the start of the one before, such
    as instructions, not again. Its cache is repeated for the answers, of which equal ones are read once.
    They are padded on the right, where a causal model cannot see it.
    """

    def __init__(self, config: EngineConfig, layers: Sequence[int]) -> None:
        self._checkpoint = Pretrained(config)
        self._layers = list(layers)
        self._token_budget = TOKEN_BUDGET[self._checkpoint.device]
        self._before: tuple[Sequence[int], Any] | None = None  # the tokens of the last prompt, and its cache

    @torch.inference_mode()
    def states(
        self,
        prompt: Prompt,
        answers: Sequence[Sequence[int] | None],
        *,
        prompt_sha256: str,
        stop: Sequence[str] = (),
        max_tokens: int = 1,
    ) -> AnswerStates:
        """The states of N answers, given as the token ids that were sampled; None was withheld.

        ``stop`` and ``max_tokens`` are those of sampling. Raises ValueError if the prompt does not render to
        ``prompt_sha256``, so that the answers are another one's, and for a state that float16 cannot hold.
        """
        (text,) = self._checkpoint.render([prompt], max_tokens)
        if text.sha256 != prompt_sha256:
            raise ValueError(
                f"the prompt renders to sha256 {text.sha256}, but the answers were sampled from "
                f"{prompt_sha256}: the prompt, the chat template or the tokenizer has changed since. "
                "Sample again, or go back to what they were."
            )
        given = [None if ids is None else answer_tokens(ids, self._decode, stop) for ids in answers]
        tbg, cache = self._read_prompt(prompt, text)
        shape = (len(self._layers), len(given), tbg.shape[-1])
        last, slt = torch.full(shape, torch.nan), torch.full(shape, torch.nan)
        distinct = sorted({answer for answer in given if answer}, key=lambda answer: len(answer.tokens))
        for batch in padded_batches(distinct, self._token_budget):
            # The pass extends the cache, so each batch gets its own copy.
            at_last, at_slt = self._read_answers(batch, copy.deepcopy(cache), tbg)
            for row, answer in enumerate(batch):
                places = [place for place, other in enumerate(given) if other == answer]
                last[:, places], slt[:, places] = at_last[:, row, None], at_slt[:, row, None]
        known = torch.tensor([answer is not None for answer in given], dtype=torch.bool)
        for part in (tbg, last[:, known], slt[:, known]):
            self._check(part)
        return AnswerStates(*(part.numpy().astype(np.float16) for part in (last, slt, tbg)))

    def states_of_texts(self, prompt: Prompt, texts: Sequence[str]) -> Halves:
        """(S, N, D) at the last token of N texts, read as if they were answers to the prompt."""
        (rendered,) = self._checkpoint.render([prompt], 1)
        ids = [self._checkpoint.tokenizer(text, add_special_tokens=False).input_ids for text in texts]
        return self.states(prompt, ids, prompt_sha256=rendered.sha256).last

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._checkpoint.tokenizer.decode(list(ids), skip_special_tokens=True))

    def _read_prompt(self, prompt: Prompt, text: RenderedPrompt) -> tuple[torch.Tensor, Any]:
        """States (S, D) at the last token, float32 on the CPU, and the cache."""
        inputs = dict(self._checkpoint.inputs(prompt, text))
        cache, n_read = self._read_before(text.token_ids)
        if cache is not None:
            inputs |= {"input_ids": inputs["input_ids"][:, n_read:], "past_key_values": cache}
        output = self._checkpoint.model(**inputs, use_cache=True, output_hidden_states=True, logits_to_keep=1)
        states = [output.hidden_states[layer][0, -1] for layer in self._layers]
        self._before = (text.token_ids, output.past_key_values)
        return torch.stack(states).float().cpu(), output.past_key_values

    def _read_before(self, ids: Sequence[int]) -> tuple[Any, int]:
        """The cache of the tokens that the last prompt began with as this one does, and their number.

        None where there is none that could be cut to them: of a model that reads images, or keeps anything
        else than the keys and values of every token.
        """
        if self._before is None or self._checkpoint.reads_images:
            return None, 0
        before, cache = self._before
        if type(cache) is not DynamicCache or any(type(layer) is not DynamicLayer for layer in cache.layers):
            return None, 0
        # The last token is read again, as its states are asked for.
        pairs = zip(before, ids[:-1], strict=False)
        shared = next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(before), len(ids) - 1))
        if not shared:
            return None, 0
        cache = copy.deepcopy(cache)
        cache.crop(shared - len(before))
        return cache, shared

    def _read_answers(
        self, batch: Sequence[AnswerTokens], cache: Any, tbg: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States (S, B, D) at ``last`` and ``slt`` of each answer, float32 on the CPU."""
        cache.batch_repeat_interleave(len(batch))
        device, width = self._checkpoint.device, max(len(answer.tokens) for answer in batch)
        # Any token does for padding: no token of an answer comes after it.
        ids = [[*answer.tokens, *[0] * (width - len(answer.tokens))] for answer in batch]
        output = self._checkpoint.model(
            input_ids=torch.tensor(ids, device=device),
            past_key_values=cache,
            use_cache=True,
            output_hidden_states=True,
            logits_to_keep=1,
        )
        chosen = [output.hidden_states[layer] for layer in self._layers]
        rows = torch.arange(len(batch), device=device)

        def at(places: list[int]) -> torch.Tensor:
            columns = torch.tensor(places, device=device)
            states = torch.stack([layer[rows, columns] for layer in chosen]).float().cpu()
            return torch.where(columns.cpu()[None, :, None] < 0, tbg[:, None], states)

        return at([answer.last for answer in batch]), at([answer.slt for answer in batch])

    def _check(self, states: torch.Tensor) -> None:
        """Float16 would make infinity of a larger number, and NaN means missing."""
        good = (states.abs() <= HALF_MAX).flatten(1).all(dim=1)  # false for NaN too
        if not good.all():
            place = int((~good).nonzero()[0])
            raise ValueError(
                f"a hidden state of layer {self._layers[place]} reaches {float(states[place].abs().max())}, "
                f"but float16 ends at {HALF_MAX:.0f}. Leave that layer out of `hidden.layers`."
            )


def padded_batches(answers: Sequence[AnswerTokens], token_budget: int) -> Iterator[Sequence[AnswerTokens]]:
    """Runs of the answers, shortest first, that padded to one length hold at most ``token_budget`` tokens.

    An answer longer than that stands alone. Ascending lengths keep the padding small.
    """
    start = 0
    for end in range(1, len(answers) + 1):
        if end == len(answers) or (end + 1 - start) * len(answers[end].tokens) > token_budget:
            yield answers[start:end]
            start = end
