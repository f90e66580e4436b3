"""Sentence encoders run by transformers: each distinct text once, in batches without padding."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from sgpu.encoders.base import distinct
from sgpu.encoders.cards import WEIGHTS, EncoderCard
from sgpu.encoders.fixed_batches import FixedBatches, same_length
from sgpu.encoders.long_texts import parts_read
from sgpu.errors import IntegrityError, UsageError
from sgpu.models.machine import cpu_dtype

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Tokens in one forward pass. A CPU core is saturated at about a thousand; a GPU needs far more.
TOKEN_BUDGET = {"cpu": 2048, "cuda": 32768}
# Texts of the smaller one of two batch shapes, see `FixedBatches`.
SMALL_BATCH = {"cpu": 32, "cuda": 256}


class SentenceEncoder:
    """An `Encoder` from a folder in Hugging Face layout.

    A vector depends on its text alone up to rounding: the matrix kernels round differently with the
    number of rows in a batch (about 1e-7 in float32, 1e-3 in bfloat16), so vectors of one text from two
    calls may differ by that much, while equal texts in one call get one vector. Give a call many texts:
    64 response sets at once are encoded five times as fast as 64 calls of one set.

    With ``fixed_batches`` a vector depends on its text alone to the last bit, on one machine with one number
    of threads, see `FixedBatches`. That is as fast for many thousand texts a call, a tenth slower for a few
    thousand, and much slower for a few.
    """

    def __init__(
        self, card: EncoderCard, folder: Path, dtype: str, device: str, fixed_batches: bool = False
    ) -> None:
        self.card = card
        self.folder = folder
        self.device = _resolve_device(device)
        self.dtype = _resolve_dtype(dtype, self.device)
        if not self._weights.is_file():
            raise IntegrityError(
                f"{self._weights} is missing; weights are read from one safetensors file only."
            )
        self._tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        model = AutoModel.from_pretrained(
            folder,
            dtype=DTYPES[self.dtype],
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
        if model.config.hidden_size != card.dim:
            raise IntegrityError(
                f"{folder} has vectors of {model.config.hidden_size} numbers; "
                f"the card of {card.name!r} says {card.dim}. Get the files of that encoder."
            )
        self._model = model.eval().to(self.device)
        self._token_budget = TOKEN_BUDGET[self.device]
        small = SMALL_BATCH[self.device]
        self._fixed = FixedBatches(self._embed, small, self._token_budget) if fixed_batches else None

    @property
    def name(self) -> str:
        return self.card.name

    @property
    def dim(self) -> int:
        return self.card.dim

    @property
    def _weights(self) -> Path:
        return self.folder / WEIGHTS

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the weights file, hex."""
        with self._weights.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(len(texts), D) float32 rows of unit norm; texts with equal tokens get bitwise equal rows.

        Tokens past ``card.max_seq_length`` are cut off, as sentence-transformers does. The empty text
        is a text.
        """
        if len(texts) == 0:
            return np.empty((0, self.dim), dtype=np.float32)
        strings, string_of = distinct(self.card.prefix + text for text in texts)
        tokens = self._tokenizer(
            parts_read(self._tokenizer, strings, self.card.max_seq_length),
            padding=False,
            truncation=True,
            max_length=self.card.max_seq_length,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]
        # "Paris" and "paris" are one text to an uncased encoder.
        sequences, sequence_of = distinct(tuple(ids) for ids in tokens)
        if self._fixed is not None:
            return self._fixed.encode(sequences)[sequence_of[string_of]]
        rows = np.empty((len(sequences), self.dim), dtype=np.float32)
        for batch in length_batches([len(ids) for ids in sequences], self._token_budget):
            rows[batch] = self._embed([sequences[i] for i in batch])
        return rows[sequence_of[string_of]]

    @torch.inference_mode()
    def _embed(self, sequences: list[tuple[int, ...]]) -> NDArray[np.float32]:
        """Sequences of one length: without padding there is nothing to mask, in attention or pooling."""
        ids = torch.tensor(sequences, device=self.device)
        states = self._model(input_ids=ids).last_hidden_state
        pooled = states[:, 0].float() if self.card.pooling == "cls" else states.float().mean(dim=1)
        return torch.nn.functional.normalize(pooled, dim=-1).cpu().numpy()


def length_batches(lengths: Sequence[int], token_budget: int) -> Iterator[NDArray[np.intp]]:
    """Places of the items in batches of one exact length, at most ``token_budget`` tokens (or one item)."""
    for group in same_length(lengths):
        size = max(1, token_budget // max(1, lengths[group[0]]))
        for start in range(0, len(group), size):
            yield group[start : start + size]


def _resolve_device(device: str) -> Literal["cpu", "cuda"]:
    if device not in {"auto", *TOKEN_BUDGET}:
        raise UsageError(f"unknown encoder device {device!r}. Known: auto, {', '.join(TOKEN_BUDGET)}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("encoder device 'cuda' was asked for, but torch sees no GPU. Use 'auto' or 'cpu'.")
    return "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"


def _resolve_dtype(dtype: str, device: str) -> Literal["float32", "bfloat16"]:
    """bfloat16 where the hardware multiplies it natively: half the time, cosines within 2e-4."""
    if dtype == "auto":
        if device == "cpu":
            return cpu_dtype()
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if dtype == "float32":
        return "float32"
    if dtype == "bfloat16":
        return "bfloat16"
    raise UsageError(f"unknown encoder dtype {dtype!r}. Known: auto, {', '.join(DTYPES)}.")
