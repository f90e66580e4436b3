"""What an engine chooses on a CPU, its number format, its threads and how they wait, against the other ones.

Run it with `python -m bench.engine_choice`.
Each choice is a process of its own, as OpenMP reads its settings when it is loaded. All are started first and
then asked in turn, five times, so that what else happens on the machine happens to all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from sgpu.engines.base import Prompt, Sampling
from sgpu.hashing import derived_seed
from sgpu.models.machine import cpu_dtype
from sgpu.provenance import available_cores
from sgpu.runtime.dataflow import SLEEPING_THREADS
from sgpu.study.models import engine_config, model_card

MODEL = "smollm2-135m-instruct"
CITIES = "Paris Lyon Rome Milan Madrid Seville Berlin Munich"
SAMPLING = Sampling(n=20, max_tokens=6)
ROUNDS = 5
BEST_BOUND, BUSY_BOUND = 0.95, 0.35
ANSWER = "tokens per second: "


class Choice(NamedTuple):
    """``sleeping``: threads that wait for others do not spin; one thread has none to wait for."""

    dtype: str
    threads: int
    sleeping: bool

    def __str__(self) -> str:
        waiting = "" if self.threads == 1 else " sleeping" if self.sleeping else " spinning"
        return f"{self.dtype} {self.threads}{waiting}"


def choices(cores: int) -> list[Choice]:
    """All of a machine with this many cores."""
    threads = dict.fromkeys(((cores, cores > 1), (cores, False), (1, False)))
    return [Choice(dtype, *waiting) for dtype in ("bfloat16", "float32") for waiting in threads]


def serve(dtype: str) -> None:
    """Sample once for every line that comes in, and say how fast."""
    from sgpu.engines.vllm import VLLMEngine

    engine = VLLMEngine(replace(engine_config(model_card(MODEL), device="cpu"), dtype=dtype))
    prompts = [
        Prompt((("user", f"In which country is {city}? Answer as briefly as possible."),), derived_seed(city))
        for city in CITIES.split()
    ]
    engine.sample(prompts, SAMPLING)  # what is loaded or compiled at the first call
    print(f"{ANSWER}0", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        generations = engine.sample(prompts, SAMPLING)
        seconds = time.perf_counter() - start
        n_tokens = sum(answer.n_tokens for generation in generations for answer in generation.answers)
        print(f"{ANSWER}{n_tokens / seconds}", flush=True)
    engine.close()


@contextmanager
def engine_process(choice: Choice) -> Iterator[subprocess.Popen[str]]:
    """A process that serves one choice."""
    environment = {name: value for name, value in os.environ.items() if name not in SLEEPING_THREADS}
    environment |= {"OMP_NUM_THREADS": str(choice.threads), **(SLEEPING_THREADS if choice.sleeping else {})}
    command = [sys.executable, "-m", "bench.engine_choice", "--dtype", choice.dtype]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        answer(process)
        try:
            yield process
        finally:
            process.stdin.close()


def answer(process: subprocess.Popen[str]) -> float:
    """The next rate that the process tells; what libraries print is passed over."""
    assert process.stdout is not None
    line = next((line for line in process.stdout if line.startswith(ANSWER)), None)
    if line is None:
        raise RuntimeError(f"the engine's process ended with exit code {process.wait()}")
    return float(line.removeprefix(ANSWER))


def rate(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    print(file=process.stdin, flush=True)
    return answer(process)


@contextmanager
def busy_cores() -> Iterator[None]:
    """One endless loop for every core."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(available_cores())]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run() -> list[Any]:
    cores = available_cores()
    own = Choice(cpu_dtype(), cores, cores > 1)
    with ExitStack() as stack:
        engines = {choice: stack.enter_context(engine_process(choice)) for choice in choices(cores)}
        rates: dict[Choice, list[float]] = {choice: [] for choice in engines}
        busy = []
        for _ in range(ROUNDS):
            for choice, engine in engines.items():
                rates[choice].append(rate(engine))
            with busy_cores():
                busy.append(rate(engines[own]))
    middle = {choice: median(values) for choice, values in rates.items()}
    share = median(loaded / quiet for loaded, quiet in zip(busy, rates[own], strict=True))
    said = ", ".join(f"{choice} {tokens:.0f}" for choice, tokens in middle.items())
    note = f"{MODEL}, {cores} cores, by dtype and threads, median of {ROUNDS} in turn: {said}"
    common = {"unit": "tokens per second", "note": note}
    best = max(middle.values())
    return [
        {
            "name": f"engine's own choice ({own.dtype}) and the best of all",
            "ours": middle[own], "baseline": best, "ratio": middle[own] / best, "bound": BEST_BOUND, **common,
        },
        {
            "name": "engine's own choice beside one busy loop a core, and alone",
            "ours": median(busy), "baseline": middle[own], "ratio": share, "bound": BUSY_BOUND, **common,
        },
    ]  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", help="be the process of one choice")
    arguments = parser.parse_args()
    if arguments.dtype:
        serve(arguments.dtype)
    else:
        print(json.dumps(run(), indent=1))
