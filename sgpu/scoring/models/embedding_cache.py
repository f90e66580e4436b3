"""Vectors of texts that were encoded before, kept on disk within a bound, for traffic that repeats itself.

The key of a vector is the hash that `RememberingEncoder` makes of encoder and text. Texts are not kept, but
their vectors say much of what is in them, so the file is as confidential as the logs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sgpu.encoders.remembered import Vectors
from sgpu.errors import UsageError

# How long to wait for other writers before going on without the cache.
WAIT_SECONDS = 5.0
KEYS_A_QUERY = 1000
# Part of the bound that is freed at a time, since to count what is there takes a while.
EVICTED_SHARE = 0.1
UNIT_TOLERANCE = 1e-4
# Of the log of changes beside the file, which is emptied into it.
LOG_BYTES = 2**24


class EmbeddingCache:
    """A `VectorMemory` in one SQLite file of about ``most_bytes`` at most; the oldest are dropped first.

    Several processes of one machine may share the file (no network folder: SQLite's locks do not hold there).
    A cache only saves time: where it is locked, full or broken it answers nothing, and ``failures`` counts
    how often. Raises UsageError for a bound that is not positive.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        if most_bytes < 1:
            raise UsageError(f"the embedding cache is bounded to {most_bytes} bytes; give 1 or more")
        self.path, self.most_bytes = Path(path), most_bytes
        self.hits = self.misses = self.failures = 0
        self._db: sqlite3.Connection | None = None

    def __reduce__(self) -> tuple[type[EmbeddingCache], tuple[Path, int]]:
        """Another process opens the file itself."""
        return EmbeddingCache, (self.path, self.most_bytes)

    def get(self, keys: Sequence[bytes], dim: int) -> dict[bytes, Vectors]:
        """The unit vectors (dim,) that are there, by key; anything else is taken for missing."""
        vectors: dict[bytes, Vectors] = {}
        try:
            db = self._open()
            for start in range(0, len(keys), KEYS_A_QUERY):
                part = keys[start : start + KEYS_A_QUERY]
                marks = ",".join("?" * len(part))
                vectors |= _usable(
                    db.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part), dim
                )
        except (sqlite3.Error, OSError):
            self._fail()
        self.hits += len(vectors)
        self.misses += len(keys) - len(vectors)
        return vectors

    def put(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        """Keep vectors (len(keys), D); those whose key is there already stay as they are."""
        rows = [(key, vector.astype("<f4").tobytes()) for key, vector in zip(keys, vectors, strict=True)]
        try:
            db = self._open()
            with db:
                db.executemany("INSERT OR IGNORE INTO vectors (key, vector) VALUES (?, ?)", rows)
                self._evict(db)
        except (sqlite3.Error, OSError):
            self._fail()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch(mode=0o600)
            db = sqlite3.connect(self.path, timeout=WAIT_SECONDS, check_same_thread=False)
            db.execute("PRAGMA journal_mode=WAL")  # readers and a writer do not wait for each other
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
            db.execute(
                "CREATE TABLE IF NOT EXISTS vectors "
                "(age INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL)"
            )
            self._db = db
        return self._db

    def _fail(self) -> None:
        self.failures += 1
        self.close()

    def _evict(self, db: sqlite3.Connection) -> None:
        (pages,), (free,), (size,) = (
            db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        used = (pages - free) * size
        if used <= self.most_bytes:
            return
        (count,) = db.execute("SELECT count(*) FROM vectors").fetchone()
        kept = int(count * (1 - EVICTED_SHARE) * self.most_bytes / used)
        db.execute(
            "DELETE FROM vectors WHERE age IN (SELECT age FROM vectors ORDER BY age LIMIT ?)", (count - kept,)
        )


def _usable(rows: sqlite3.Cursor, dim: int) -> dict[bytes, Vectors]:
    """The rows that are unit vectors of this dimension."""
    sized = [(key, blob) for key, blob in rows if isinstance(blob, bytes) and len(blob) == 4 * dim]
    vectors = np.frombuffer(b"".join(blob for _, blob in sized), dtype="<f4").reshape(len(sized), dim)
    # Written so that NaN counts as bad.
    good = np.abs(np.linalg.norm(vectors, axis=1) - 1.0) <= UNIT_TOLERANCE
    return {key: vector for (key, _), vector, fine in zip(sized, vectors, good, strict=True) if fine}
