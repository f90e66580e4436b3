"""The cache of answer embeddings: bounded, shared, and never more than a saving of time."""

from __future__ import annotations

import multiprocessing
import pickle
import sqlite3
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sgpu.encoders.remembered import RememberingEncoder
from sgpu.errors import UsageError
from sgpu.scoring.models.embedding_cache import EmbeddingCache

BIG = 2**26


class RandomEncoder:
    """A random unit vector for every text, the same at each call."""

    name, dtype, dim = "random", "float32", 64

    def __init__(self, fingerprint: str = "f00d") -> None:
        self.fingerprint = fingerprint
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls.append(list(texts))
        seeds = [int.from_bytes(text.encode()[:8] or b"0", "big") for text in texts]
        rows = np.array([np.random.default_rng(seed).normal(size=self.dim) for seed in seeds])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def texts(count: int, start: int = 0) -> list[str]:
    return [f"t{i:06d}" for i in range(start, start + count)]


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(tmp_path / "work" / "vectors.sqlite", BIG)


def test_vectors_come_back_to_the_last_bit_and_in_order(cache: EmbeddingCache) -> None:
    first, second = RandomEncoder(), RandomEncoder()
    RememberingEncoder(first, cache).encode(["a", "b", "a"])
    found = RememberingEncoder(second, cache).encode(["c", "b", "a", "c", ""])
    assert first.calls == [["a", "b"]]
    assert second.calls == [["c", ""]]
    assert found.tobytes() == RandomEncoder().encode(["c", "b", "a", "c", ""]).tobytes()
    assert (cache.hits, cache.misses, cache.failures) == (2, 4, 0)


def test_a_known_text_needs_no_encoder(cache: EmbeddingCache) -> None:
    RememberingEncoder(RandomEncoder(), cache).encode(texts(2500))
    again = RandomEncoder()
    RememberingEncoder(again, cache).encode(texts(2500))
    assert again.calls == []


def test_another_encoder_finds_nothing(cache: EmbeddingCache) -> None:
    RememberingEncoder(RandomEncoder("f00d"), cache).encode(["a"])
    for name, value in {
        "fingerprint": "beef",
        "dtype": "bfloat16",
        "name": "other",
        "device": "cuda",
    }.items():
        other = RandomEncoder()
        setattr(other, name, value)
        RememberingEncoder(other, cache).encode(["a"])
        assert other.calls == [["a"]], name


def test_no_texts_ask_nobody(cache: EmbeddingCache) -> None:
    encoder = RandomEncoder()
    assert RememberingEncoder(encoder, cache).encode([]).shape == (0, 64)
    assert encoder.calls == []


PRAGMAS = ("page_count", "freelist_count", "page_size")


def test_it_stays_within_its_bound_and_keeps_the_newest(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path / "vectors.sqlite", 200_000)
    encoder = RandomEncoder()
    cached = RememberingEncoder(encoder, cache)
    for start in range(0, 4000, 200):
        cached.encode(texts(200, start))
        with sqlite3.connect(cache.path) as db:
            pages, free, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS)
        assert (pages - free) * size <= 200_000
    cached.encode(texts(100, 3900))
    assert len(encoder.calls) == 20
    cached.encode(texts(100, 0))
    assert len(encoder.calls) == 21


def test_a_bound_below_one_batch_keeps_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path / "vectors.sqlite", 1)
    cached = RememberingEncoder(RandomEncoder(), cache)
    assert cached.encode(texts(50)).tobytes() == RandomEncoder().encode(texts(50)).tobytes()
    assert cache.failures == 0


def test_the_file_holds_no_text_and_is_the_users_own(cache: EmbeddingCache) -> None:
    RememberingEncoder(RandomEncoder(), cache).encode(["a secret answer"])
    cache.close()
    assert b"secret" not in b"".join(path.read_bytes() for path in cache.path.parent.iterdir())
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "vector", [b"", b"\0" * 12, np.full(64, np.nan, "<f4").tobytes(), np.ones(64, "<f4").tobytes(), "text"]
)
def test_a_vector_that_cannot_be_right_is_encoded_anew(cache: EmbeddingCache, vector: bytes) -> None:
    RememberingEncoder(RandomEncoder(), cache).encode(["a"])
    cache.close()
    with sqlite3.connect(cache.path) as db:
        db.execute("UPDATE vectors SET vector = ?", (vector,))
    found = RememberingEncoder(RandomEncoder(), cache).encode(["a"])
    assert found.tobytes() == RandomEncoder().encode(["a"]).tobytes()


def test_a_broken_file_costs_time_only(cache: EmbeddingCache) -> None:
    cache.path.parent.mkdir()
    cache.path.write_bytes(b"not a database" * 1000)
    found = RememberingEncoder(RandomEncoder(), cache).encode(["a"])
    assert found.tobytes() == RandomEncoder().encode(["a"]).tobytes()
    assert cache.failures == 2


def test_a_locked_file_costs_time_only(cache: EmbeddingCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgpu.scoring.models.embedding_cache.WAIT_SECONDS", 0.05)
    RememberingEncoder(RandomEncoder(), cache).encode(["a"])
    other = sqlite3.connect(cache.path)
    other.execute("BEGIN EXCLUSIVE")
    RememberingEncoder(RandomEncoder(), cache).encode(["b"])
    assert cache.failures == 1
    other.rollback()
    again = RandomEncoder()
    RememberingEncoder(again, cache).encode(["a"])
    assert again.calls == []


def test_it_travels_to_another_process_as_its_path(cache: EmbeddingCache) -> None:
    RememberingEncoder(RandomEncoder(), cache).encode(["a"])
    copy = pickle.loads(pickle.dumps(cache))  # noqa: S301
    assert (copy.path, copy.most_bytes, copy.hits) == (cache.path, BIG, 0)


def write_many(path: Path, start: int) -> int:
    cache = EmbeddingCache(path, BIG)
    cached = RememberingEncoder(RandomEncoder(), cache)
    for turn in range(20):
        cached.encode(texts(50, start + 25 * turn))
    return cache.failures


def test_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.starmap(write_many, [(path, 0), (path, 200)]) == [0, 0]
    encoder, wanted = RandomEncoder(), texts(725)  # of 0 to 525 and 200 to 725
    found = RememberingEncoder(encoder, EmbeddingCache(path, BIG)).encode(wanted)
    assert encoder.calls == []
    assert found.tobytes() == RandomEncoder().encode(wanted).tobytes()


def test_a_bound_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="0 bytes"):
        EmbeddingCache(tmp_path / "x", 0)
