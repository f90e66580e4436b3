"""Addresses of servers: which part of one may be shown or kept, and who could read a key on its way there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

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
