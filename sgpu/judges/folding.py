"""Text as it looks to a reader: disguised letters become the plain ones, each with its place in the text."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

# Letters of other scripts, small capitals and symbols that pass for a Latin letter.
_LOOK_ALIKES = {
    "a": "аαɑᴀ@4", "b": "вβʙ8", "c": "сᴄ", "d": "ԁᴅ", "e": "еεᴇ€3", "f": "ꜰ", "g": "ɡɢ9", "h": "һнʜ",
    "i": "іιɪıl1", "j": "јᴊ", "k": "кκᴋ", "m": "мᴍ", "n": "пηɴո", "o": "оοσᴏ0øօ", "p": "рρᴘ", "r": "гʀ",
    "s": "ѕꜱ$5", "t": "тτᴛ7", "u": "υᴜս", "v": "νѵᴠ", "w": "ԝωᴡ", "x": "хχ", "y": "уγʏ", "z": "ᴢ",
}  # fmt: skip
_SKELETON = {ord(other): letter for letter, others in _LOOK_ALIKES.items() for other in others}
# Letters in circles, in squares and as regional indicators; Unicode does not decompose them.
_BOXED = {
    first + place: letter
    for first in (0x1F150, 0x1F170, 0x1F1E6)
    for place, letter in enumerate("abcdefghijklmnopqrstuvwxyz")
}
_INVISIBLE = {
    *range(0x180B, 0x180F), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *range(0xFFF0, 0xFFF9),
    0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0xFFFE, 0xFFFF,
}  # fmt: skip


def without_invisible(text: str) -> str:
    """``text`` without characters that show nothing: zero-width, directional, tag and control characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char for char in text if char.isspace() or not _is_invisible(char))


def fold(text: str) -> tuple[str, list[int]]:
    """Compatibility forms, case and diacritics taken away; for each character also its place in ``text``."""
    pieces = [_fold_char(char) for char in text]
    places = [place for place, piece in enumerate(pieces) for _ in piece]
    return "".join(pieces), places


def skeleton(folded: str) -> str:
    """The folded text with look-alikes as the Latin letter, of the same length; l, 1 and i become one."""
    return folded.translate(_SKELETON)


def _is_invisible(char: str) -> bool:
    return ord(char) in _INVISIBLE or unicodedata.category(char) in ("Cf", "Cc", "Cs")


@lru_cache(maxsize=2**14)
def _fold_char(char: str) -> str:
    if char == "_":
        return " "
    if boxed := _BOXED.get(ord(char)):
        return boxed
    plain = unicodedata.normalize("NFKD", char).casefold()
    return "".join(piece for piece in plain if not "\u0300" <= piece <= "\u036f")
