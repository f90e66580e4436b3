"""Text of others made safe to show: what would vanish, reorder what is read, or steer a terminal, is seen."""

from __future__ import annotations

SHOWN_CHARACTERS = 280
# Tab and newline stay. Codes from 128 to 159 are control characters of terminals too, and marks of direction
# reorder what is read.
_SHOWN: dict[int, int | str] = {code: 0x2400 + code for code in range(32) if code not in (9, 10)}
_SHOWN |= {127: 0x2421}
_SHOWN |= {
    code: f"⟨U+{code:04X}⟩" for code in (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def controls_shown(text: str) -> str:
    """The text with control characters and marks of direction as signs; for pages it is yet to be escaped."""
    return text.translate(_SHOWN)


def visible(text: object) -> str:
    """Model text cut to SHOWN_CHARACTERS, with control characters made visible; not yet escaped."""
    whole = str(text)
    cut = controls_shown(whole[:SHOWN_CHARACTERS])
    rest = len(whole) - SHOWN_CHARACTERS
    return f"{cut}… (and {rest} more characters)" if rest > 0 else cut
