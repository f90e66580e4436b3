"""Hashes and seeds of content: the same content gives the same in any order, process and run.

What is stored carries these hashes (fingerprints of stages, ids of response sets and prompts, keys of
journals), so that no change of their text is possible without an answer to what was stored before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

# vLLM gives child i of a request the seed `seed + i`. Seeds that are multiples of this stride keep the
# streams of two questions apart for up to that many answers.
CHILD_STRIDE = 1024
# Seeds for sampling. Of 31 bits, 38% of a million questions would share theirs. A proxy that reads JSON's
# numbers as floats rounds those above 2**53: all answers to a question would then have the same seed.
SAMPLING_SEED_BITS = 53


def canonical_json(
    content: Any,
    *,
    ascii_only: bool = True,
    default: Callable[[Any], Any] | None = None,
) -> str:
    """JSON with sorted keys: the same content gives the same text in any key order.

    ``ascii_only`` escapes all other letters, and ``default`` says what becomes of a value that JSON has no
    word for; without it that is a TypeError.
    """
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii_only, default=default
    )


def sha256_hex(content: str | bytes) -> str:
    """sha256 of bytes or of a text in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def sha256_of_file(path: Path) -> str:
    """sha256 of a file's content, read a part at a time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def derived_seed(*parts: object, bits: int = 31) -> int:
    """Return a seed in [0, 2**bits) from any printable parts, a multiple of CHILD_STRIDE."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") % (2**bits // CHILD_STRIDE) * CHILD_STRIDE


def order_key(dataset: str, seed: int, native_id: str) -> str:
    """The key that every split sorts by: sha256 over data set, seed and native id."""
    return sha256_hex(f"{dataset}\x1f{seed}\x1f{native_id}")
