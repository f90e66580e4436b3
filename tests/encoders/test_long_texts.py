"""Texts longer than an encoder reads: what is cut off before the tokenizer changes no token and no bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sgpu.encoders import load_encoder
from sgpu.encoders import sentence as long_texts
from sgpu.encoders.sentence import parts_read

N = 256
PROSE = "The capital of Peru is Lima, which lies on the coast. " * 400
# Before the text, what a tokenizer drops, merges or makes one token of.
BEFORE = {
    "nothing": "",
    "spaces": " " * 5_000,
    "zero width": "\u200b" * 5_000,
    "control": "\x01" * 5_000,
    "combining": "e" + "\u0301\u0316" * 2_500,
    "word": "x" * 5_000,
    "word and more": "x" * 5_000 + " ",
    "punctuation": "!?" * 5_000,
    "one token": "[MASK]" * 2_000,
}


@pytest.fixture(scope="module")
def encoder() -> Any:
    return load_encoder("all-MiniLM-L6-v2", "float32", "cpu", fixed_batches=True)


def _drawn(pieces: Sequence[str], drawn: random.Random) -> str:
    runs = [drawn.choice(pieces) * drawn.choice([1, 3, 50, 101, 700]) for _ in range(drawn.randint(1, 8))]
    return "".join([*runs, *drawn.choices(pieces, k=400)])


def ids(encoder: Any, texts: Sequence[str], n: int) -> Any:
    return encoder._tokenizer(list(texts), truncation=True, max_length=n)["input_ids"]


@pytest.mark.parametrize("before", BEFORE)
def test_vectors_are_those_of_the_whole_text(
    before: str, encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = BEFORE[before] + PROSE
    cut = encoder.encode([text])
    monkeypatch.setattr("sgpu.encoders.sentence.parts_read", lambda _tokenizer, texts, _n: list(texts))
    assert np.array_equal(cut, encoder.encode([text]))


def test_tokens_are_those_of_the_whole_text_wherever_it_is_cut(encoder: Any) -> None:
    drawn = random.Random(0)
    pieces = [
        " ", "\u200b", "\x01", "\u0301", "\u0316\u0301", "a", "e\u0301", "中", "!", "\n", "\u00a0", "[MASK]",
        "[SEP]", "word ", "unbelievable ", "ß", "한", "ᄒ", "ᅡ", "🙂", "﷽", "=\u0338", "क्षि", "\u20dd",
        "1234567", "_",
    ]  # fmt: skip
    cut = 0
    for n in (16, 32):
        texts = [_drawn(pieces, drawn) for _ in range(100)]
        parts = parts_read(encoder._tokenizer, texts, n)
        assert ids(encoder, parts, n) == ids(encoder, texts, n)
        cut += sum(len(part) < len(text) for part, text in zip(parts, texts, strict=True))
    assert cut > 100


@pytest.mark.parametrize("text", ["!?" * 50_000, PROSE * 5, "中" * 100_000])
def test_the_tokenizer_sees_little_more_than_it_uses(text: str, encoder: Any) -> None:
    [part] = parts_read(encoder._tokenizer, [text[:100_000]], N)
    assert len(part) <= long_texts.CHARACTERS_A_TOKEN * N


def test_a_short_text_is_not_looked_at() -> None:
    class NoTokenizer:
        is_fast = True

        def get_added_vocab(self) -> dict[str, int]:
            return {}

    assert parts_read(NoTokenizer(), ["short", ""], N) == ["short", ""]


def test_a_tokenizer_that_tells_no_words_gets_the_whole_text() -> None:
    class Slow:
        is_fast = False

    assert parts_read(Slow(), [PROSE], 8) == [PROSE]
