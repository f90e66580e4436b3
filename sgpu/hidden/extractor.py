"""Hidden states of given answers: one forward pass over some prompts, one over their answers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from sgpu.engines.base import EngineConfig, Prompt, clean_answer
from sgpu.engines.pretrained import Pretrained
from sgpu.engines.prompts import RenderedPrompt
from sgpu.hidden.rows import AnsweredPrompt, AnswerStates, Halves
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


@dataclass(frozen=True)
class _Question:
    """An answered prompt as it is read, and its place among those that were asked for."""

    place: int
    prompt: Prompt
    text: RenderedPrompt
    answers: list[AnswerTokens | None]

    @property
    def distinct(self) -> list[AnswerTokens]:
        """Equal answers are read once."""
        return [answer for answer in dict.fromkeys(self.answers) if answer]


HALF_MAX = float(np.finfo(np.float16).max)
# Tokens in the caches of one forward pass, padding included: a prompt is repeated for each of its answers.
CACHED_TOKENS = {"cpu": 8192, "cuda": 32768}


class HiddenStateExtractor:
    """Holds one model; computes in its dtype, returns float16.

    Prompts are read together where the model keeps the keys and values of every token and reads no images,
    else one at a time. What all of them share with the start of one before, such as instructions, is not
    read again. Their caches are repeated for the answers, of which equal ones are read once. Both are padded
    on the right, where a causal model cannot see it; a mask hides what stands between a shorter prompt and
    its answers.
    """

    def __init__(self, config: EngineConfig, layers: Sequence[int]) -> None:
        self._checkpoint = Pretrained(config)
        self._layers = list(layers)
        self._cached_tokens = CACHED_TOKENS[self._checkpoint.device]
        self._together = False  # whether several prompts can be read at once: its first cache shows it
        # The tokens of a prompt, and the cache that begins with it.
        self._before: tuple[Sequence[int], Any] | None = None

    @torch.inference_mode()
    def states(
        self, asked: Sequence[AnsweredPrompt], *, stop: Sequence[str] = (), max_tokens: int = 1
    ) -> list[AnswerStates | ValueError]:
        """The states of the answers to each prompt, in order.

        ``stop`` and ``max_tokens`` are those of sampling. Instead of states a ValueError says why there are
        none: the prompt does not render to its sha256, so that the answers are another one's, or a state is
        larger than float16 can hold.
        """
        results: dict[int, AnswerStates | ValueError] = {}
        questions = []
        for place, one in enumerate(asked):
            try:
                questions.append(self._question(place, one, stop, max_tokens))
            except ValueError as error:
                results[place] = error
        for group in self._groups(questions):
            for question, (last, slt, tbg) in zip(group, self._read(group), strict=True):
                known = [answer is not None for answer in question.answers]
                wrong = next(filter(None, map(self._too_large, (tbg, last[:, known], slt[:, known]))), None)
                results[question.place] = wrong or AnswerStates(*map(_halves, (last, slt, tbg)))
        return [results[place] for place in range(len(asked))]

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

    def _question(self, place: int, asked: AnsweredPrompt, stop: Sequence[str], max_tokens: int) -> _Question:
        (text,) = self._checkpoint.render([asked.prompt], max_tokens)
        if text.sha256 != asked.prompt_sha256:
            raise ValueError(
                f"the prompt renders to sha256 {text.sha256}, but the answers were sampled from "
                f"{asked.prompt_sha256}: the prompt, the chat template or the tokenizer has changed since. "
                "Sample again, or go back to what they were."
            )
        answers = [None if ids is None else answer_tokens(ids, self._decode, stop) for ids in asked.answers]
        return _Question(place, asked.prompt, text, answers)

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._checkpoint.tokenizer.decode(list(ids), skip_special_tokens=True))

    def _groups(self, questions: Sequence[_Question]) -> Iterator[Sequence[_Question]]:
        """Runs of questions whose caches fit together."""
        start = 0
        while start < len(questions):
            end = start + 1
            while end < len(questions) and self._fit(questions[start : end + 1]):
                end += 1
            yield questions[start:end]
            start = end

    def _fit(self, questions: Sequence[_Question]) -> bool:
        answers = [answer for question in questions for answer in question.distinct]
        longest = max((len(answer.tokens) for answer in answers), default=0)
        width = max(len(question.text.token_ids) for question in questions) + longest
        return self._together and width * max(len(questions), len(answers)) <= self._cached_tokens

    def _read(self, group: Sequence[_Question]) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """``last`` (S, N, D), ``slt`` (S, N, D) and ``tbg`` (S, D) of each question; NaN for no answer."""
        tbg, cache = self._read_prompts(group)
        shapes = [(len(self._layers), len(question.answers), tbg.shape[-1]) for question in group]
        last, slt = ([torch.full(shape, torch.nan) for shape in shapes] for _ in range(2))
        pairs = [(row, answer) for row, question in enumerate(group) for answer in question.distinct]
        pairs.sort(key=lambda pair: len(pair[1].tokens))
        lengths = [len(answer.tokens) for _, answer in pairs]
        for batch in padded_batches(lengths, cache.get_seq_length(), self._cached_tokens):
            at_last, at_slt = self._read_answers(group, pairs[batch], cache, tbg)
            for number, (row, answer) in enumerate(pairs[batch]):
                places = [place for place, other in enumerate(group[row].answers) if other == answer]
                last[row][:, places] = at_last[:, number, None]
                slt[row][:, places] = at_slt[:, number, None]
        yield from zip(last, slt, tbg.unbind(1), strict=True)

    def _read_prompts(self, group: Sequence[_Question]) -> tuple[torch.Tensor, Any]:
        """States (S, B, D) at the last token of B prompts, float32 on the CPU, and their cache."""
        ids = [question.text.token_ids for question in group]
        if len(group) == 1:
            inputs = dict(self._checkpoint.inputs(group[0].prompt, group[0].text))
        else:
            inputs = {"input_ids": self._padded(ids)}
        cache, n_read = self._read_before(ids)
        if cache is not None:
            inputs |= {"input_ids": inputs["input_ids"][:, n_read:], "past_key_values": cache}
        output = self._checkpoint.model(**inputs, use_cache=True, output_hidden_states=True, logits_to_keep=1)
        cache = output.past_key_values
        self._together = not self._checkpoint.reads_images and _keeps_every_token(cache)
        self._before = (ids[0], cache) if self._together else None
        # Of one prompt the last: an image stands for more tokens than its text has.
        ends = [-1] if len(group) == 1 else [len(sequence) - n_read - 1 for sequence in ids]
        return self._at(output, ends), cache

    def _read_before(self, prompts: Sequence[Sequence[int]]) -> tuple[Any, int]:
        """A cache of the tokens that all prompts and one before begin with, for each; and their number."""
        if self._before is None:
            return None, 0
        before, cache = self._before
        # The last token of a prompt is read again, as its states are asked for.
        together = zip(before, *(ids[:-1] for ids in prompts), strict=False)
        shared = sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, together))
        if not shared:
            return None, 0
        cache = _rows_of(cache, torch.zeros(len(prompts), dtype=torch.long, device=self._checkpoint.device))
        cache.crop(shared - cache.get_seq_length())
        return cache, shared

    def _read_answers(
        self,
        group: Sequence[_Question],
        pairs: Sequence[tuple[int, AnswerTokens]],
        cache: Any,
        tbg: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States (S, A, D) at ``last`` and ``slt`` of A answers, each with the row of its prompt."""
        rows = torch.tensor([row for row, _ in pairs], device=self._checkpoint.device)
        ids = self._padded([answer.tokens for _, answer in pairs])
        output = self._checkpoint.model(
            input_ids=ids,
            past_key_values=_rows_of(cache, rows),
            use_cache=True,
            output_hidden_states=True,
            logits_to_keep=1,
            **self._behind_padding(group, rows, ids.shape[1], cache.get_seq_length()),
        )

        def at(places: list[int]) -> torch.Tensor:
            before = torch.tensor(places)[None, :, None] < 0
            return torch.where(before, tbg[:, rows.cpu()], self._at(output, places))

        return at([answer.last for _, answer in pairs]), at([answer.slt for _, answer in pairs])

    def _behind_padding(
        self, group: Sequence[_Question], rows: torch.Tensor, width: int, n_cached: int
    ) -> Mapping[str, torch.Tensor]:
        """What tells the model where answers stand whose prompts are shorter than others in the cache."""
        lengths = torch.tensor([len(question.text.token_ids) for question in group], device=rows.device)
        if len(group) == 1 or bool((lengths == n_cached).all()):
            return {}
        own = lengths[rows, None]
        seen = torch.arange(n_cached, device=rows.device) < own
        answer = torch.arange(width, device=rows.device).expand(len(rows), width)
        return {"attention_mask": torch.cat([seen, answer >= 0], 1).long(), "position_ids": own + answer}

    def _padded(self, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
        """On the right, with any token: none that counts comes after it."""
        width = max(map(len, sequences))
        ids = [[*sequence, *[0] * (width - len(sequence))] for sequence in sequences]
        return torch.tensor(ids, device=self._checkpoint.device)

    def _at(self, output: Any, places: Sequence[int]) -> torch.Tensor:
        """States (S, B, D) at one token of each row, float32 on the CPU."""
        device = self._checkpoint.device
        rows, columns = torch.arange(len(places), device=device), torch.tensor(places, device=device)
        chosen = [output.hidden_states[layer][rows, columns] for layer in self._layers]
        return torch.stack(chosen).float().cpu()

    def _too_large(self, states: torch.Tensor) -> ValueError | None:
        """Float16 would make infinity of a larger number, and NaN means missing."""
        good = (states.abs() <= HALF_MAX).flatten(1).all(dim=1)  # false for NaN too
        if good.all():
            return None
        place = int((~good).nonzero()[0])
        return ValueError(
            f"a hidden state of layer {self._layers[place]} reaches {float(states[place].abs().max())}, "
            f"but float16 ends at {HALF_MAX:.0f}. Leave that layer out of `hidden.layers`."
        )


def _halves(states: torch.Tensor) -> Halves:
    return states.numpy().astype(np.float16)


def _keeps_every_token(cache: Any) -> bool:
    """Whether a cache can be cut and repeated as plain keys and values."""
    return type(cache) is DynamicCache and all(type(layer) is DynamicLayer for layer in cache.layers)


def _rows_of(cache: Any, rows: torch.Tensor) -> Any:
    """A cache of its own: the pass that takes it extends it."""
    if _keeps_every_token(cache):  # which is never written to in place, so nothing is copied twice
        own = copy.copy(cache)
        own.layers = [copy.copy(layer) for layer in cache.layers]
    else:
        own = copy.deepcopy(cache)
    own.batch_select_indices(rows)
    return own


def padded_batches(lengths: Sequence[int], n_before: int, cached_tokens: int) -> Iterator[slice]:
    """Runs of ascending lengths whose caches hold at most ``cached_tokens``, with ``n_before`` before each.

    Those of a run are padded to one length, which ascending lengths keep small. What is longer than the bound
    stands alone.
    """
    start = 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or (end + 1 - start) * (n_before + lengths[end]) > cached_tokens:
            yield slice(start, end)
            start = end
