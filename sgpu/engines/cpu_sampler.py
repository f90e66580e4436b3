"""Exact, faster stand-ins for two functions of vLLM's sampler on the CPU.

For every token of every answer vLLM sorts the whole vocabulary to keep the k most likely tokens, and at the
first call it compiles a kernel (20 s) to rank the chosen one. The functions here give the same distribution,
and the draw that follows is vLLM's own.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch

# Logits are bfloat16, so ties at the k-th place are common and vLLM keeps all of them. Looking this far
# past k finds them; a row with more is left to vLLM.
TIE_ROOM = 14

Mask = Callable[[torch.Tensor, torch.Tensor | None, torch.Tensor | None], torch.Tensor]


def install() -> bool:
    """Use the stand-ins for the engines of this process. False if this vLLM is laid out differently."""
    from vllm.v1.sample import sampler
    from vllm.v1.sample.ops import topk_topp_sampler

    stock: Any = getattr(topk_topp_sampler, "apply_top_k_top_p", None)
    if isinstance(stock, functools.partial):
        return True
    n_arguments = getattr(getattr(stock, "__code__", None), "co_argcount", None)
    if n_arguments != 3 or not hasattr(sampler, "batched_count_greater_than"):
        logging.getLogger(__name__).warning("unknown vLLM sampler: sampling on the CPU will be slow")
        return False
    topk_topp_sampler.apply_top_k_top_p = functools.partial(mask_top_k_top_p, stock=stock)
    sampler.batched_count_greater_than = count_not_less
    return True


def mask_top_k_top_p(
    logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None, *, stock: Mask
) -> torch.Tensor:
    """Top-k, then top-p over the survivors: ``logits`` (B, V) with all other tokens at -inf, in place.

    ``k`` (B,) is V where there is no limit, ``p`` (B,) is 1. ``stock`` is vLLM's function; it does the rows
    where the search among the ``max(k) + TIE_ROOM`` largest logits would not be exact.
    """
    if k is None or p is None:
        return stock(logits, k, p)
    n_candidates = int(k.max()) + TIE_ROOM
    if n_candidates * 8 > logits.shape[1]:
        return stock(logits, k, p)
    values, tokens = logits.topk(n_candidates, dim=-1)
    kth = values.gather(1, k.long().unsqueeze(1) - 1)
    if bool((values[:, -1:] == kth).any()):
        return stock(logits, k, p)
    # Ascending, as vLLM accumulates probability. Among equal logits at the edge of top-p vLLM drops any,
    # as its sort leaves them; here it is always those with the lowest token id.
    tokens, order = tokens.sort(dim=-1)
    values, order = values.gather(1, order).sort(dim=-1, stable=True)
    tokens = tokens.gather(1, order)
    values.masked_fill_(values < kth, -torch.inf)
    outside = values.softmax(dim=-1).cumsum(dim=-1) <= 1 - p.unsqueeze(1)
    outside[:, -1] = False  # the most likely token always stays
    values.masked_fill_(outside, -torch.inf)
    return logits.fill_(-torch.inf).scatter_(1, tokens, values)


def count_not_less(logprobs: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """How many of ``logprobs`` (B, V) are at least ``value`` (B, 1): the rank of the chosen token."""
    # A sum in int64 takes three times as long.
    return (logprobs >= value).sum(dim=-1, dtype=torch.int32).long()
