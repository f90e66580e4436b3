"""Response sets that were sampled elsewhere, made for tests: right ones repeat, wrong ones scatter."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

CITIES = ["Paris", "Rome", "Madrid", "Berlin", "Vienna", "Lisbon", "Oslo", "Athens", "Dublin", "Warsaw"]


def response_sets(rows: int, n: int = 6, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    made = []
    for i in range(rows):
        reference, sure = draw.choice(CITIES), draw.random()
        answers = [reference if draw.random() < sure else draw.choice(CITIES) for _ in range(n)]
        made.append(
            {
                "question_id": f"q{i}",
                "question": f"Which city is number {i}?",
                "answers": answers,
                "references": [reference],
                "token_logprobs": [[-draw.random(), -draw.random()] for _ in answers],
            }
        )
    return made


def write_study(folder: Path, rows: list[dict[str, Any]], study: str = "") -> Path:
    """`answers.jsonl` and a study of it; returns the study file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "own.yaml"
    path.write_text(
        study
        or "datasets: [{kind: responses, path: answers.jsonl, model: my-model}]\n"
        "methods: [sgpu, predictive_entropy, largest_eigenvalue]\n"
    )
    return path
