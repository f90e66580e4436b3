"""Hidden states of given answers: forward passes over prompts with their answers behind them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from sgpu.engines.base import EngineConfig, Prompt
from sgpu.engines.pretrained import Pretrained
from sgpu.hidden.pass_rows import PADDING, PROMPT, AnsweredQuestion, PassRow, answer_tokens
from sgpu.hidden.rows import AnsweredPrompt, AnswerStates, Halves

HALF_MAX = float(np.finfo(np.float16).max)
PASS_TOKENS = 8192  # of one forward pass: those read, those in its caches, and padding
PASS_PADDING = 64  # of them, where rows of different lengths are read together


class HiddenStateExtractor:
    """Holds one model; computes in its dtype, returns float16.

    Where the model keeps the keys and values of every token, takes any mask and reads no images, a row of a
    forward pass is a prompt with all its different answers behind it: the mask hides them from each other,
    positions let each begin where the prompt ends. Questions of nearly one length are read together, and what
    all of them share with the start of one before, such as instructions, is not read again. Other models read
    a prompt, then its answers with its cache repeated for each.
    """

    def __init__(self, config: EngineConfig, layers: Sequence[int]) -> None:
        self._checkpoint = Pretrained(config)
        self._layers = list(layers)
        self._pass_tokens = PASS_TOKENS
        self._together = False  # whether answers can stand in one row: its first cache shows it
        # The tokens of a prompt, and the cache that begins with it.
        self._before: tuple[Sequence[int], Any] | None = None

    @torch.inference_mode()
    def states(
        self, prompts: Sequence[AnsweredPrompt], *, stop: Sequence[str] = (), max_tokens: int = 1
    ) -> list[AnswerStates | ValueError]:
        """The states of the answers to each prompt, in order.

        ``stop`` and ``max_tokens`` are those of sampling. Instead of states a ValueError says why there are
        none: the prompt does not render to its sha256, so that the answers are another one's, or a state is
        larger than float16 can hold.
        """
        results: dict[int, AnswerStates | ValueError] = {}
        questions = []
        for index, prompt in enumerate(prompts):
            try:
                questions.append(self._question(index, prompt, stop, max_tokens))
            except ValueError as error:
                results[index] = error
        for group in self._groups(questions):
            for question, (last, slt, tbg) in zip(group, self._read(group), strict=True):
                present = [answer is not None for answer in question.answers]
                parts = (tbg, last[:, present], slt[:, present])
                wrong = next(filter(None, map(self._too_large, parts)), None)
                halves = (states.numpy().astype(np.float16) for states in (last, slt, tbg))
                results[question.index] = wrong or AnswerStates(*halves)
        return [results[index] for index in range(len(prompts))]

    def states_of_texts(self, prompt: Prompt, texts: Sequence[str]) -> Halves:
        """(S, N, D) at the last token of N texts, read as if they were answers to the prompt.

        Raises ValueError as `states` gives it.
        """
        (rendered,) = self._checkpoint.render([prompt], 1)
        ids = [self._checkpoint.tokenizer(text, add_special_tokens=False).input_ids for text in texts]
        (states,) = self.states([AnsweredPrompt(prompt, rendered.sha256, ids)])
        if isinstance(states, ValueError):
            raise states
        return states.last

    def _question(
        self, index: int, query: AnsweredPrompt, stop: Sequence[str], max_tokens: int
    ) -> AnsweredQuestion:
        (text,) = self._checkpoint.render([query.prompt], max_tokens)
        if text.sha256 != query.prompt_sha256:
            raise ValueError(
                f"the prompt renders to sha256 {text.sha256}, but the answers were sampled from "
                f"{query.prompt_sha256}: the prompt, the chat template or the tokenizer has changed since. "
                "Sample again, or go back to what they were."
            )
        answers = [None if ids is None else answer_tokens(ids, self._decode, stop) for ids in query.answers]
        return AnsweredQuestion(index, text, answers)

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._checkpoint.tokenizer.decode(list(ids), skip_special_tokens=True))

    def _groups(self, questions: Sequence[AnsweredQuestion]) -> Iterator[Sequence[AnsweredQuestion]]:
        """Questions of nearly one length that fit into one forward pass."""
        questions = sorted(questions, key=lambda question: question.n_tokens)
        start = 0
        while start < len(questions):
            end = start + 1
            while end < len(questions) and self._fit(questions[start : end + 1]):
                end += 1
            yield questions[start:end]
            start = end

    def _fit(self, questions: Sequence[AnsweredQuestion]) -> bool:
        widths = [question.n_tokens for question in questions]
        n_tokens = max(widths) * len(widths)
        return self._together and n_tokens <= self._pass_tokens and n_tokens - sum(widths) <= PASS_PADDING

    def _read(
        self, group: Sequence[AnsweredQuestion]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """``last`` (S, N, D), ``slt`` (S, N, D) and ``tbg`` (S, D) of each question; NaN for no answer."""
        read = self._read_rows(group) if self._fit(group) else map(self._read_alone, group)
        for question, (tbg, at_last, at_slt) in zip(group, read, strict=True):
            shape = (len(self._layers), len(question.answers), tbg.shape[-1])
            last, slt = (torch.full(shape, torch.nan) for _ in range(2))
            for number, answer in enumerate(question.distinct):
                places = [index for index, other in enumerate(question.answers) if other == answer]
                last[:, places] = at_last[:, number, None]
                slt[:, places] = at_slt[:, number, None]
            yield last, slt, tbg

    def _read_rows(
        self, group: Sequence[AnsweredQuestion]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """``tbg`` (S, D), ``last`` and ``slt`` (S, A, D) of each question's A different answers."""
        prompts = [question.text.token_ids for question in group]
        cache, n_read = self._read_before(prompts)
        rows = [PassRow(question, n_read) for question in group]
        output = self._forward(
            input_ids=self._padded([row.tokens for row in rows]),
            position_ids=self._padded([row.positions for row in rows]),
            attention_mask=self._mask([row.owners for row in rows], n_read),
            past_key_values=cache,
        )
        self._before = prompts[0], _part(output.past_key_values, len(prompts[0]), 1)
        columns = [(number, column) for number, row in enumerate(rows) for column in row.wanted]
        states = self._at(output, *zip(*columns, strict=True)).split([len(row.wanted) for row in rows], 1)
        for state in states:
            tbg, *answers = state.split([1, *[state.shape[1] // 2] * 2], 1)
            yield tbg[:, 0], answers[0], answers[1]

    def _read_before(self, prompts: Sequence[Sequence[int]]) -> tuple[Any, int]:
        """A cache of the tokens that all prompts and one before begin with, for each; and their number."""
        if self._before is None:
            return None, 0
        before, cache = self._before
        # The last token of a prompt is read again, as its states are asked for.
        together = zip(before, *(ids[:-1] for ids in prompts), strict=False)
        shared = sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, together))
        return (_part(cache, shared, len(prompts)), shared) if shared else (None, 0)

    def _mask(self, owners: Sequence[Sequence[int]], n_read: int) -> torch.Tensor:
        """(B, 1, T, n_read + T), added to attention: a token sees its prompt and its own answer before it."""
        owner = self._padded(owners, PADDING)
        order = torch.arange(owner.shape[1], device=owner.device)
        seen = (owner[:, None, :] == PROMPT) | (owner[:, None, :] == owner[:, :, None])
        seen = torch.nn.functional.pad(seen & (order <= order[:, None]), (n_read, 0), value=True)
        dtype = self._checkpoint.model.dtype
        return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)[:, None]

    def _read_alone(self, question: AnsweredQuestion) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As `_read_rows` for one question: its prompt, then its answers, each with a copy of its cache."""
        output = self._forward(**self._checkpoint.inputs(question.text))
        # Counted from the end: an image stands for more tokens than its text has.
        tbg, cache = self._at(output, [0], [-1])[:, 0], output.past_key_values
        self._together = (
            not self._checkpoint.reads_images
            and self._checkpoint.model.config._attn_implementation in ("eager", "sdpa")  # any mask
            and _keeps_every_token(cache)
        )
        self._before = (question.text.token_ids, cache) if self._together else None
        answers = question.distinct
        states = torch.full((2, len(self._layers), len(answers), tbg.shape[-1]), torch.nan)
        order = sorted(range(len(answers)), key=lambda number: len(answers[number].tokens))
        lengths = [len(answers[number].tokens) for number in order]
        for batch in padded_batches(lengths, cache.get_seq_length(), self._pass_tokens):
            numbers = order[batch]
            output = self._forward(
                input_ids=self._padded([answers[number].tokens for number in numbers]),
                past_key_values=_repeated(cache, len(numbers)),
            )
            for which, name in enumerate(("last", "slt")):
                places = [getattr(answers[number], name) for number in numbers]
                read = self._at(output, range(len(numbers)), places)
                before = torch.tensor(places)[None, :, None] < 0
                states[which][:, numbers] = torch.where(before, tbg[:, None], read)
        return tbg, *states

    def _forward(self, **inputs: Any) -> Any:
        return self._checkpoint.model(**inputs, use_cache=True, output_hidden_states=True, logits_to_keep=1)

    def _padded(self, sequences: Sequence[Sequence[int]], filler: int = 0) -> torch.Tensor:
        """On the right, where no token that counts can see it."""
        width = max(map(len, sequences))
        ids = [[*sequence, *[filler] * (width - len(sequence))] for sequence in sequences]
        return torch.tensor(ids, device=self._checkpoint.device)

    def _at(self, output: Any, rows: Sequence[int], columns: Sequence[int]) -> torch.Tensor:
        """(S, K, D) states at K tokens, float32 on the CPU."""
        places = torch.tensor([[*rows], [*columns]], device=self._checkpoint.device)
        return torch.stack([output.hidden_states[layer][*places] for layer in self._layers]).float().cpu()

    def _too_large(self, states: torch.Tensor) -> ValueError | None:
        """Float16 would make infinity of a larger number, and NaN means missing."""
        good = (states.abs() <= HALF_MAX).flatten(1).all(dim=1)  # false for NaN too
        if good.all():
            return None
        layer = int((~good).nonzero()[0])
        return ValueError(
            f"a hidden state of layer {self._layers[layer]} reaches {float(states[layer].abs().max())}, "
            f"but float16 ends at {HALF_MAX:.0f}. Leave that layer out of `hidden.layers`."
        )


def _keeps_every_token(cache: Any) -> bool:
    """Whether a cache can be cut and repeated as plain keys and values."""
    return type(cache) is DynamicCache and all(type(layer) is DynamicLayer for layer in cache.layers)


def _part(cache: Any, n_tokens: int, n_rows: int) -> Any:
    """The first tokens of a cache's first row, for each of ``n_rows``; of plain keys and values."""
    own = copy.copy(cache)  # which are never written to in place, so that nothing is copied twice
    own.layers = [copy.copy(layer) for layer in cache.layers]
    own.crop(n_tokens - own.get_seq_length())
    own.batch_select_indices(torch.zeros(n_rows, dtype=torch.long, device=own.layers[0].keys.device))
    return own


def _repeated(cache: Any, n_rows: int) -> Any:
    """A cache of its own for each row: the pass that takes it extends it."""
    own = copy.deepcopy(cache)
    own.batch_repeat_interleave(n_rows)
    return own


def padded_batches(lengths: Sequence[int], n_before: int, n_tokens: int) -> Iterator[slice]:
    """Runs of ascending lengths whose caches hold at most ``n_tokens``, with ``n_before`` before each.

    Those of a run are padded to one length, which ascending lengths keep small. What is longer than the bound
    stands alone.
    """
    start = 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or (end + 1 - start) * (n_before + lengths[end]) > n_tokens:
            yield slice(start, end)
            start = end
