"""Sentence encoders of sentence-transformers: each distinct text once, in batches without padding.

A tokenizer that is asked to cut keeps what it has cut off: 50,000 tokens of which 256 are read. A text cannot
be cut by its characters instead, since one token can stand for any number of them: spaces, invisible and
combining characters are dropped or merged, and a word of more than 100 letters is one unknown token. So how
much of a long text is read is found out without giving the whole of it to the tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from sgpu.encoders.base import distinct
from sgpu.encoders.cards import EncoderCard, weights_file, weights_sha256
from sgpu.errors import IntegrityError
from sgpu.models.machine import device_for, dtype_for

CHARACTERS_A_TOKEN = 8  # of the first prefix that is tried
GROWTH = 4
TOGETHER = 64  # texts that are held as tokens at once
# Where a text is cut, its last word may go on and the one before may depend on what follows it.
OPEN_WORDS = 2


def parts_read(tokenizer: Any, texts: Sequence[str], n_tokens: int) -> list[str]:
    """Each text, or a prefix of it whose first ``n_tokens`` tokens are those of the whole text.

    ``tokenizer`` is one of transformers; texts are left whole for one that does not tell words and offsets.
    """
    parts = list(texts)
    if not tokenizer.is_fast:
        return parts
    size = CHARACTERS_A_TOKEN * n_tokens
    # Tokens that are found in the text before it is split into words, such as [MASK], could be cut in two.
    margin = max((len(token) for token in tokenizer.get_added_vocab()), default=0)
    open_ = [index for index, text in enumerate(texts) if len(text) > size]
    while open_:
        still_open = []
        for start in range(0, len(open_), TOGETHER):
            indices = open_[start : start + TOGETHER]
            prefixes = [texts[index][:size] for index in indices]
            for index, prefix, settled in zip(
                indices, prefixes, _settled(tokenizer, prefixes, margin), strict=True
            ):
                if settled >= n_tokens:
                    parts[index] = prefix
                else:
                    still_open.append(index)
        size *= GROWTH
        open_ = [index for index in still_open if len(texts[index]) > size]
    return parts


def _settled(tokenizer: Any, prefixes: Sequence[str], margin: int) -> list[int]:
    """How many tokens of each prefix stay as they are, whatever comes after it."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    counts = []
    for prefix, encoding in zip(
        prefixes, backend.encode_batch(prefixes, add_special_tokens=False), strict=True
    ):
        words = encoding.word_ids
        last = words[-1] if words else None
        end = len(prefix) - margin
        settled = 0
        for word, (_, stop) in zip(words, encoding.offsets, strict=True):
            if last is None or word is None or word > last - OPEN_WORDS or stop > end:
                break
            settled += 1
        counts.append(settled)
    return counts


Vectors = NDArray[np.float32]
Tokens = tuple[int, ...]


class FixedBatches:
    """Token sequences encoded so that what is encoded with a sequence changes no bit of its vector.

    Matrix kernels are chosen by the shape of a batch and add in different orders; within one shape the vector
    of a row depends neither on the other rows nor on its place. So there are two shapes for each length of
    sequences: a small batch, filled up with repetitions where sequences are left over, and a large one, which
    is faster. The large one is used only after its first batch of a length was seen to give the bits of small
    ones. On the CPU that this was tried on it always did (bfloat16 with AMX, float32): kernels change below
    some 400 tokens a batch.

    Batches are of ``small`` sequences of one length, or of as many as have ``token_budget`` tokens.

    ``embed`` turns sequences of one length into vectors, (B,) -> (B, D).
    """

    def __init__(self, embed: Callable[[list[Tokens]], Vectors], small: int, token_budget: int) -> None:
        self._embed, self._small, self._token_budget = embed, small, token_budget
        self._alike: dict[int, bool] = {}

    def encode(self, sequences: Sequence[Tokens]) -> Vectors:
        """(len(sequences), D) vectors; there is at least one sequence."""
        parts: list[Vectors] = []
        places = []
        for group in same_length([len(ids) for ids in sequences]):
            parts += self._group([sequences[index] for index in group])
            places.append(group)
        vectors = np.concatenate(parts)
        rows = np.empty_like(vectors)
        rows[np.concatenate(places)] = vectors
        return rows

    def _group(self, sequences: list[Tokens]) -> Iterator[Vectors]:
        """Vectors of sequences of one length, in order."""
        fitting = max(1, self._token_budget // max(1, len(sequences[0])))
        small = min(self._small, fitting)
        large = fitting - fitting % small
        done = 0
        while len(sequences) - done >= large > small and self._rounds_alike(sequences[done:][:large], small):
            yield self._embed(sequences[done : done + large])
            done += large
        for start in range(done, len(sequences), small):
            batch = sequences[start : start + small]
            yield self._embed(batch + [batch[0]] * (small - len(batch)))[: len(batch)]

    def _rounds_alike(self, batch: list[Tokens], small: int) -> bool:
        """Whether a large batch gives the bits of small ones, tried at its two ends once for each length."""
        length = len(batch[0])
        if length not in self._alike:
            vectors = self._embed(batch)
            ends = (slice(0, small), slice(len(batch) - small, len(batch)))
            self._alike[length] = all(np.array_equal(vectors[end], self._embed(batch[end])) for end in ends)
        return self._alike[length]


def same_length(lengths: Sequence[int]) -> list[NDArray[np.intp]]:
    """Places of the items of each length, in their order."""
    order = np.argsort(lengths, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(np.asarray(lengths)[order])) + 1)


DTYPES = ("float32", "bfloat16")
# Tokens in one forward pass. A CPU core is saturated at about a thousand; a GPU needs far more.
TOKEN_BUDGET = {"cpu": 2048, "cuda": 32768}
# Texts of the smaller one of two batch shapes, see `FixedBatches`.
SMALL_BATCH = {"cpu": 32, "cuda": 256}


class SentenceEncoder:
    """An `Encoder` from a folder in the layout of sentence-transformers: its transformer and its pooling.

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
        self.name, self.dim, self.folder = card.name, card.dim, folder
        self.device = device_for("encoder", device)
        self.dtype = dtype_for("encoder", dtype, self.device, DTYPES, _dtype_on_gpu)
        weights_file(folder)
        model = SentenceTransformer(
            str(folder),
            device=self.device,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"dtype": getattr(torch, self.dtype), "use_safetensors": True},
        )
        if (dim := model.get_embedding_dimension()) != card.dim:
            raise IntegrityError(
                f"{folder} has vectors of {dim} numbers; "
                f"the card of {card.name!r} says {card.dim}. Get the files of that encoder."
            )
        self._transformer, self._pooling = model.eval()[0], model[1]
        self._tokenizer, self._n_tokens = model.tokenizer, model.max_seq_length
        self._prefix = card.prefix or model.prompts.get(model.default_prompt_name) or ""
        if self._prefix and not self._pooling.include_prompt:
            raise IntegrityError(
                f"{folder} leaves its prompt {self._prefix!r} out of pooling: not supported."
            )
        self._token_budget = TOKEN_BUDGET[self.device]
        small = SMALL_BATCH[self.device]
        self._fixed = FixedBatches(self._embed, small, self._token_budget) if fixed_batches else None

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the weights file, hex."""
        return weights_sha256(self.folder)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(len(texts), D) float32 rows of unit norm; texts with equal tokens get bitwise equal rows.

        Tokens past the encoder's ``max_seq_length`` are cut off, as sentence-transformers does. The empty
        text is a text.
        """
        if len(texts) == 0:
            return np.empty((0, self.dim), dtype=np.float32)
        strings, string_of = distinct(self._prefix + text for text in texts)
        tokens = self._tokenizer(
            parts_read(self._tokenizer, strings, self._n_tokens),
            padding=False,
            truncation=True,
            max_length=self._n_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]
        # "Paris" and "paris" are one text to an uncased encoder.
        sequences, sequence_of = distinct(tuple(ids) for ids in tokens)
        if self._fixed is not None:
            return self._fixed.encode(sequences)[sequence_of[string_of]]
        rows = np.empty((len(sequences), self.dim), dtype=np.float32)
        for batch in batch_equal_lengths([len(ids) for ids in sequences], self._token_budget):
            rows[batch] = self._embed([sequences[i] for i in batch])
        return rows[sequence_of[string_of]]

    @torch.inference_mode()
    def _embed(self, sequences: list[tuple[int, ...]]) -> NDArray[np.float32]:
        """Embed sequences of one length: without padding, attention and pooling have nothing to mask."""
        states = self._transformer({"input_ids": torch.tensor(sequences, device=self.device)})
        # Pooled in float32: sums of bfloat16 would lose what the forward pass has kept.
        pooled = self._pooling({"token_embeddings": states["token_embeddings"].float()})
        return torch.nn.functional.normalize(pooled["sentence_embedding"], dim=-1).cpu().numpy()


def batch_equal_lengths(lengths: Sequence[int], token_budget: int) -> Iterator[NDArray[np.intp]]:
    """Yield places of items in batches of one exact length: ``token_budget`` tokens at most (or one item)."""
    for group in same_length(lengths):
        size = max(1, token_budget // max(1, lengths[group[0]]))
        for start in range(0, len(group), size):
            yield group[start : start + size]


def _dtype_on_gpu() -> str:
    """bfloat16 where the hardware multiplies it natively: half the time, cosines within 2e-4."""
    return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
