"""Prompts that were read one by one, continued together: their caches in one batch, padded on the left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from sgpu.engines.base import EngineConfig, Sampling
from sgpu.errors import UsageError

OPTION = "prompts_together"
ON_CUDA, ON_CPU = 8, 2
# The other half is for the copies that a step makes of one layer, and for the logits.
CUDA_SHARE = 0.5
CPU_BYTES = 2**30
# Scalings of rotary positions under which no row depends on how long another one is.
FIXED_ROPE = frozenset({"default", "linear", "llama3", "yarn"})


@dataclass
class ReadPrompt:
    """A prompt after its forward pass: float32 logits (1, V) of the next token, its cache, its ids (1, T).

    ``next_position`` is that of the next token; None if the prompt can only be continued alone.
    """

    logits: torch.Tensor
    cache: Any
    ids: torch.Tensor
    next_position: int | None = None

    @property
    def n_tokens(self) -> int:
        return self.ids.shape[1]

    @property
    def bytes_per_token(self) -> float:
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.cache.layers) / self.n_tokens


class NextPosition:
    """Sees at which positions a model reads a prompt, and so where the next token is.

    Image models count the tokens of an image in their own ways (M-RoPE of Qwen-VL, from 1 in PaliGemma).
    What they hand to their language model holds the outcome.
    """

    def __init__(self, model: Any) -> None:
        decoder = model.get_decoder()
        self._known = getattr(getattr(decoder, "rotary_emb", None), "rope_type", None) in FIXED_ROPE
        self._was_called = False
        self._given: torch.Tensor | None = None
        decoder.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self._was_called, self._given = True, kwargs.get("position_ids")

    def after(self, cache: Any, n_tokens: int) -> int | None:
        """Of the prompt that was read last; None if its ``cache`` cannot be padded and merged.

        Only keys and values of every token can: no sliding window, no state of linear attention, nothing
        quantized, no layer that looks at something else than the tokens.
        """
        if not (self._known and self._was_called and type(cache) is DynamicCache):
            return None
        if any(type(kv) is not DynamicLayer or kv.get_seq_length() != n_tokens for kv in cache.layers):
            return None
        # (B, T), or (3 or 4, B, T), of which the last three are those of M-RoPE.
        return n_tokens if self._given is None else int(self._given[-3:].max()) + 1


class MergedCache:
    """The cache of ``n`` rows for each prompt, in order, with room for ``max_tokens`` more tokens.

    A prompt that can only be continued alone is repeated as it is.
    """

    def __init__(self, prompts: Sequence[ReadPrompt], n: int, max_tokens: int) -> None:
        self._cache, self._n = prompts[0].cache, n
        self._mask: torch.Tensor | None = None
        self._positions: torch.Tensor | None = None
        device = prompts[0].ids.device
        if prompts[0].next_position is None:
            # `batch_repeat_interleave` would do for keys and values, but states of linear attention lack it.
            self._cache.reorder_cache(torch.zeros(n, dtype=torch.long, device=device))
            return
        positions = torch.tensor([[prompt.next_position] for prompt in prompts], device=device)
        self._positions = positions.repeat_interleave(n, dim=0)
        lengths = torch.tensor([[prompt.n_tokens] for prompt in prompts], device=device)
        longest = max(prompt.n_tokens for prompt in prompts)
        if any(prompt.n_tokens < longest for prompt in prompts):  # without a mask attention is faster
            mask = torch.arange(longest, device=device) >= longest - lengths
            self._mask = mask.long().repeat_interleave(n, dim=0)
        merged = []
        for layers in zip(*(prompt.cache.layers for prompt in prompts), strict=True):
            keys, values = [layer.keys for layer in layers], [layer.values for layer in layers]
            merged.append(_RoomyLayer(_padded(keys, n, max_tokens), _padded(values, n, max_tokens), longest))
        self._cache.layers = merged

    def step(self, model: Any, chosen: torch.Tensor) -> torch.Tensor:
        """Float32 logits (B, V) after the tokens ``chosen`` (B, 1)."""
        arguments = {}
        if self._mask is not None:
            self._mask = torch.cat([self._mask, torch.ones_like(chosen)], dim=1)
            arguments["attention_mask"] = self._mask
        if self._positions is not None:
            arguments["position_ids"] = self._positions
            self._positions = self._positions + 1
        output = model(input_ids=chosen, past_key_values=self._cache, use_cache=True, **arguments)
        self._cache = output.past_key_values
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits

    def keep(self, places: Sequence[int], chosen: torch.Tensor) -> torch.Tensor:
        """Drop the prompts that are not at ``places``; returns what is left of ``chosen`` (B, 1)."""
        indices = torch.tensor(places, device=chosen.device)
        rows = torch.arange(len(chosen), device=chosen.device).view(-1, self._n)[indices].flatten()
        self._cache.batch_select_indices(rows)
        if self._mask is not None:
            self._mask = self._mask[rows]
        if self._positions is not None:
            self._positions = self._positions[rows]
        return chosen[rows]


class _RoomyLayer(DynamicLayer):
    """Has room for the answers, so that a step writes one token where a `DynamicLayer` copies all of them."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, n_tokens: int) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self._all_keys, self._all_values = keys, values
        self._show(n_tokens)

    def _show(self, n_tokens: int) -> None:
        self.keys, self.values = self._all_keys[:, :, :n_tokens], self._all_values[:, :, :n_tokens]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.keys.shape[2]
        end = start + key_states.shape[2]
        self._all_keys[:, :, start:end] = key_states
        self._all_values[:, :, start:end] = value_states
        self._show(end)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self._all_keys, self._all_values = self._all_keys[indices], self._all_values[indices]
        self._show(self.keys.shape[2])


def _padded(states: Sequence[torch.Tensor], n: int, room: int) -> torch.Tensor:
    """Keys or values (1, H, T, D) of each prompt as (P * n, H, longest T + room, D)."""
    _, heads, _, width = states[0].shape
    longest = max(state.shape[2] for state in states)
    merged = states[0].new_zeros(len(states), n, heads, longest + room, width)
    for rows, state in zip(merged, states, strict=True):
        rows[:, :, longest - state.shape[2] : longest] = state
    return merged.flatten(0, 1)


def groups(
    prompts: Iterable[tuple[int, ReadPrompt]], most: int, budget: float, sampling: Sampling
) -> Iterator[list[tuple[int, ReadPrompt]]]:
    """Numbered prompts in groups of at most ``most`` whose merged cache takes at most ``budget`` bytes.

    A group comes out before the next prompt is read, unless that prompt was needed to end it. One that can
    only be continued alone comes right after it was read, because its model may remember what it read last.
    """
    group: list[tuple[int, ReadPrompt]] = []
    for number, prompt in prompts:
        if group and not _fits([*(other for _, other in group), prompt], budget, sampling):
            yield group
            group = []
        group = [*group, (number, prompt)]
        if len(group) == most or prompt.next_position is None:
            yield group
            group = []
    if group:
        yield group


def _fits(prompts: Sequence[ReadPrompt], budget: float, sampling: Sampling) -> bool:
    if any(prompt.next_position is None for prompt in prompts):
        return False
    longest = max(prompt.n_tokens for prompt in prompts) + sampling.max_tokens
    return len(prompts) * sampling.n * longest * prompts[0].bytes_per_token <= budget


def prompts_together(config: EngineConfig, device: str) -> int:
    """How many prompts to continue together. Raises UsageError for an option that is no whole number >= 1."""
    value = config.options.get(OPTION, ON_CUDA if device == "cuda" else ON_CPU)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{OPTION} of {config.model} is {value!r}; it must be a whole number of at least 1")
    return value


def cache_budget(device: str) -> float:
    """Bytes that a merged cache may take now."""
    if device != "cuda":
        return CPU_BYTES
    free, _ = torch.cuda.mem_get_info()
    # What torch holds without using it is free as well.
    return CUDA_SHARE * (free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
