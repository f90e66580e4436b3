"""The comparable words of a text: without case, accents, punctuation, articles and thousands separators."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Latin letters that NFKD does not take apart.
_PLAIN_LATIN = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"}
)
_DIACRITIC = re.compile("[\u0300-\u036f]")
_DIGIT_COMMA = re.compile(r"(?<=\d),(?=\d)")
_WORD = re.compile(r"\d+(?:\.\d+)*|[^\s\d.]+")
_ARTICLES = frozenset({"a", "an", "the"})


# The answers to a question repeat, and a reference is compared with each of them.
@lru_cache(maxsize=2**14)
def words(text: str) -> tuple[str, ...]:
    """Return the comparable words of ``text``, in order.

    Case folded, diacritics stripped (only those of Latin, Greek and Cyrillic: in other scripts marks are
    vowels), punctuation taken as a space, commas inside numbers removed, the articles a, an, the left out
    unless nothing else remains. Written for scripts that put spaces between words.
    """
    plain = _DIACRITIC.sub("", unicodedata.normalize("NFKD", text.casefold())).translate(_PLAIN_LATIN)
    tokens = _WORD.findall("".join(map(_word_char, _DIGIT_COMMA.sub("", plain))))
    return tuple(word for word in tokens if word not in _ARTICLES) or tuple(tokens)


def _word_char(char: str) -> str:
    """Return the character if it is part of a word or may be of a number, else a space."""
    # Marks are asked for by category: `\w` of `re` has the letters of Hindi or Thai but not their vowels.
    return char if char.isalnum() or char == "." or unicodedata.category(char)[0] == "M" else " "


def positions(needle: tuple[str, ...], haystack: tuple[str, ...]) -> list[int]:
    """Return where the word sequence ``needle`` starts in ``haystack``; nothing for an empty needle."""
    width = len(needle)
    if not width:
        return []
    return [i for i in range(len(haystack) - width + 1) if haystack[i : i + width] == needle]
