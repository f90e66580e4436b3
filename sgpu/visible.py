"""Text of others made safe to show: what would vanish, reorder what is read, or steer a terminal, is seen.

Of addresses of servers: which part may be shown or kept, and who could read a key on its way there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

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


_WORD = re.compile(r"\S*")
_AUTHORITY = re.compile(r"[^/?#]*")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]*\]|[^:]*)(:[0-9]*)?[^0-9A-Za-z]*")
_VALUE = re.compile(r"=[^&#\s'\"<>]+")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://\S+")


def without_credentials(text: str) -> str:
    """A message or an address without the users, passwords and values of queries of the addresses in it."""
    first, *rest = text.split("//")
    return "//".join([first, *map(_without_secrets, rest)])


def masked(tree: Any) -> Any:
    """JSON-like settings in which every text that is an address is `without_credentials`."""
    if isinstance(tree, Mapping):
        return {key: masked(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [masked(value) for value in tree]
    return without_credentials(tree) if isinstance(tree, str) and _ADDRESS.fullmatch(tree) else tree


def exposes_key(address: str) -> bool:
    """Whether a key that is sent there travels unencrypted over a network."""
    parts = urlsplit(address)
    return parts.scheme == "http" and not _is_loopback(parts.hostname or "")


def _without_secrets(after: str) -> str:
    """What follows the `//` of an address, up to the next one."""
    word = _WORD.match(after)[0]  # type: ignore[index]
    authority = _AUTHORITY.match(word)[0]  # type: ignore[index]
    # A password with an unescaped slash makes a host of its first half.
    named = authority if "@" in authority or _HOST.fullmatch(authority) else word
    start = named.rfind("@") + 1
    path, mark, query = word[start:].partition("?")
    return path + mark + _VALUE.sub("=***", query) + after[len(word) :]


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
