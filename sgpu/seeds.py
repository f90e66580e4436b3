"""Seeds derived from names, so that order, batching and restarts change nothing."""

from __future__ import annotations

import hashlib

# vLLM gives child i of a request the seed `seed + i`. Seeds that are multiples of this stride keep the
# streams of two questions apart for up to that many answers.
CHILD_STRIDE = 1024


def derived_seed(*parts: object) -> int:
    """A seed in [0, 2**31) from any printable parts, a multiple of CHILD_STRIDE."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") % (2**31 // CHILD_STRIDE) * CHILD_STRIDE


def order_key(dataset: str, seed: int, native_id: str) -> str:
    """The key that every split sorts by: sha256 over data set, seed and native id."""
    return hashlib.sha256(f"{dataset}\x1f{seed}\x1f{native_id}".encode()).hexdigest()
