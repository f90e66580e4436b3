"""A small DeBERTa with random weights, and what plain transformers say with it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import DebertaForSequenceClassification

from bench.random_deberta import VOCABULARY, write_deberta

__all__ = ["MAX_LENGTH", "plain_verdict", "token_ids", "write_deberta"]

MAX_LENGTH = 128


def token_ids(premise: str, hypothesis: str) -> list[int]:
    """[CLS] premise [SEP] hypothesis [SEP], written out byte by byte without a tokenizer."""
    byte_tokens = ByteLevel(add_prefix_space=False, use_regex=False)

    def ids(text: str) -> list[int]:
        return [VOCABULARY[char] for part, _ in byte_tokens.pre_tokenize_str(text) for char in part]

    cls, sep = VOCABULARY["[CLS]"], VOCABULARY["[SEP]"]
    return [cls, *ids(premise), sep, *ids(hypothesis), sep]


@cache
def _model(folder: Path) -> Any:
    return DebertaForSequenceClassification.from_pretrained(folder).eval()


@torch.inference_mode()
def plain_verdict(folder: Path, premise: str, hypothesis: str, columns: tuple[int, ...]) -> Any:
    """What transformers says of one pair, alone and without padding, in the order of ``columns``."""
    logits = _model(folder)(input_ids=torch.tensor([token_ids(premise, hypothesis)])).logits
    return np.asarray(logits[0, list(columns)].double().softmax(dim=-1))
