"""How much of a long text an encoder reads, found out without giving the whole of it to the tokenizer.

A tokenizer that is asked to cut keeps what it has cut off: 50,000 tokens of which 256 are read. A text cannot
be cut by its characters instead, since one token can stand for any number of them: spaces, invisible and
combining characters are dropped or merged, and a word of more than 100 letters is one unknown token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    open_ = [place for place, text in enumerate(texts) if len(text) > size]
    while open_:
        still_open = []
        for start in range(0, len(open_), TOGETHER):
            places = open_[start : start + TOGETHER]
            prefixes = [texts[place][:size] for place in places]
            for place, prefix, settled in zip(
                places, prefixes, _settled(tokenizer, prefixes, margin), strict=True
            ):
                if settled >= n_tokens:
                    parts[place] = prefix
                else:
                    still_open.append(place)
        size *= GROWTH
        open_ = [place for place in still_open if len(texts[place]) > size]
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
