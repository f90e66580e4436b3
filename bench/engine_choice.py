"""Compare the engines that a CPU machine starts for a small model with the other choices that it has.

Run it with `python -m bench.engine_choice`.
A choice is a number format, a number of engines side by side, and the threads of each and how they wait. Each
engine is a process of its own, as OpenMP reads its settings when it is loaded. All are started first and then
asked in turn, five times, so that other work on the machine affects all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
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
from sgpu.study.resolve import resolve

MODEL = "smollm2-135m-instruct"
CITIES = "Paris Lyon Rome Milan Madrid Seville Berlin Munich"
SAMPLING = Sampling(n=20, max_tokens=6)
ROUNDS = 5
QUIET_BOUND, BUSY_BOUND = 0.95, 1.2
ANSWER = "tokens per second: "
Engines = Sequence["subprocess.Popen[str]"]


class Choice(NamedTuple):
    """``sleeping``: threads that wait for others do not spin; one thread has none to wait for."""

    dtype: str
    engines: int
    threads: int
    sleeping: bool = True

    def __str__(self) -> str:
        waiting = "" if self.threads == 1 else " sleeping" if self.sleeping else " spinning"
        return f"{self.dtype} {self.engines} x {self.threads}{waiting}"


def choices(cores: int) -> list[Choice]:
    """Return all choices of a machine with this many cores that use all of them."""
    ways = dict.fromkeys([(cores, 1, True), (1, cores, True), (1, cores, False)])
    return [Choice(dtype, *way) for dtype in ("bfloat16", "float32") for way in ways]


def serve(dtype: str) -> None:
    """Sample once for every line that comes in, and print how fast."""
    from sgpu.engines.vllm import VLLMEngine

    engine = VLLMEngine(replace(engine_config(model_card(MODEL), resolve("cpu")), dtype=dtype))
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
    """Run one engine of a choice in a process that samples when it is asked."""
    environment = {name: value for name, value in os.environ.items() if name not in SLEEPING_THREADS}
    environment |= {"OMP_NUM_THREADS": str(choice.threads), **(SLEEPING_THREADS if choice.sleeping else {})}
    command = [sys.executable, "-m", "bench.engine_choice", "--dtype", choice.dtype]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        read_rate(process)
        try:
            yield process
        finally:
            process.stdin.close()


def read_rate(process: subprocess.Popen[str]) -> float:
    """Return the next rate that the process prints; what libraries print is passed over."""
    assert process.stdout is not None
    line = next((line for line in process.stdout if line.startswith(ANSWER)), None)
    if line is None:
        raise RuntimeError(f"the engine's process ended with exit code {process.wait()}")
    return float(line.removeprefix(ANSWER))


def measure_rate(engines: Engines) -> float:
    """Return the tokens per second of engines that sample at the same time."""
    for process in engines:
        assert process.stdin is not None
        print(file=process.stdin, flush=True)
    return sum(read_rate(process) for process in engines)


@contextmanager
def busy_loop() -> Iterator[None]:
    """Keep one core busy."""
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def run() -> list[Any]:
    """Measure all choices quiet, and ours and the one engine over all cores beside a busy loop."""
    cores = available_cores()
    own, one = Choice(cpu_dtype(), cores, 1), Choice(cpu_dtype(), 1, cores)
    with ExitStack() as stack:
        engines = {
            choice: [stack.enter_context(engine_process(choice)) for _ in range(choice.engines)]
            for choice in choices(cores)
        }
        quiet: dict[Choice, list[float]] = {choice: [] for choice in engines}
        busy: dict[Choice, list[float]] = {own: [], one: []}
        for _ in range(ROUNDS):
            for choice, processes in engines.items():
                quiet[choice].append(measure_rate(processes))
            for choice, rates in busy.items():
                with busy_loop():
                    rates.append(measure_rate(engines[choice]))
    middle = {choice: median(values) for choice, values in quiet.items()}
    listed = ", ".join(f"{choice} {tokens:.0f}" for choice, tokens in middle.items())
    note = f"{MODEL}, {cores} cores, number format, engines x threads, median of {ROUNDS} in turn: {listed}"
    common = {"unit": "tokens per second", "note": note}
    best = max(middle.values())
    beside = {choice: median(rates) for choice, rates in busy.items()}
    return [
        {
            "name": f"{own} and the best of all choices",
            "ours": middle[own], "baseline": best, "ratio": middle[own] / best,
            "bound": QUIET_BOUND, **common,
        },
        {
            "name": f"{own} and {one}, both beside one busy loop",
            "ours": beside[own], "baseline": beside[one], "ratio": beside[own] / beside[one],
            "bound": BUSY_BOUND, **common,
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
