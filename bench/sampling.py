"""Tokens that vLLM samples on the CPU, with its own top-k and top-p and with ours.

Run it with `python -m bench.sampling`.
Each variant runs in a process of its own, because the stand-ins change vLLM for a whole process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from sgpu.engines import cpu_sampler
from sgpu.engines.base import Prompt, Sampling
from sgpu.hashing import derived_seed
from sgpu.models.machine import cpu_dtype
from sgpu.study.models import engine_config, model_card
from sgpu.study.resolve import resolve

MODEL = "smollm2-135m-instruct"
CITIES = "Paris Lyon Rome Milan Madrid Seville Berlin Munich London Leeds Oslo Bergen Tokyo Osaka Cairo Lagos"
QUESTIONS = (4, 16)
BOUND = 1.5


def tokens_per_second(n_questions: int, stock: bool) -> float:
    """Per second of CPU time, for 20 answers to each question at once."""
    from sgpu.engines.vllm import VLLMEngine

    if stock:
        cpu_sampler.install = lambda: False
    engine = VLLMEngine(engine_config(model_card(MODEL), resolve("cpu")))
    prompts = [
        Prompt((("user", f"In which country is {city}? Answer as briefly as possible."),), derived_seed(city))
        for city in CITIES.split()[:n_questions]
    ]
    engine.sample(prompts[:1], Sampling(max_tokens=3))  # what is loaded or compiled at the first call
    start = time.process_time()
    generations = engine.sample(prompts, Sampling())
    seconds = time.process_time() - start
    engine.close()
    return sum(answer.n_tokens for one in generations for answer in one.answers) / seconds


def in_own_process(n_questions: int, stock: bool) -> float:
    command = [sys.executable, "-m", "bench.sampling", "--questions", str(n_questions)]
    finished = subprocess.run([*command, *["--stock"] * stock], capture_output=True, text=True, check=True)
    return float(json.loads(finished.stdout.splitlines()[-1]))


def run() -> list[Any]:
    rows = []
    for n_questions in QUESTIONS:
        ours, stock = (in_own_process(n_questions, stock) for stock in (False, True))
        rows.append(
            {
                "name": f"sampling, {20 * n_questions} sequences at once",
                "ours": ours,
                "baseline": stock,
                "ratio": ours / stock,
                "bound": BOUND,
                "unit": "tokens per CPU second",
                "note": f"{MODEL}, {cpu_dtype()}, top-k 50, top-p 0.9; baseline: vLLM as it comes",
            }
        )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, help="measure one variant, for this many questions")
    parser.add_argument("--stock", action="store_true", help="with vLLM's own top-k and top-p")
    arguments = parser.parse_args()
    if arguments.questions is None:
        print(json.dumps(run(), indent=1))
    else:
        print(json.dumps(tokens_per_second(arguments.questions, arguments.stock)))
