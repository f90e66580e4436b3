"""Tokens per second of the whole sampling stage (Ray Data, checkpoints, Parquet) over bare vLLM.

Run it with `python -m bench sampling_stage`. Both answer the same prompts with the same engine settings, each
in processes of its own. The start of the engine is left out of both, its first call only of bare vLLM.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sgpu.provenance import available_cores
from sgpu.runtime.progress import Progress
from sgpu.stages.questions import prepare_questions
from sgpu.stages.run import Run
from sgpu.stages.sample import engine_of, plan_sampling
from sgpu.storage.store import Partition
from sgpu.study.benchmark import Study

MODEL = "smollm2-135m-instruct"
BOUND = 0.95
STUDY = {
    "name": "bench",
    "models": [MODEL],
    "datasets": [{"kind": "worldfacts", "n_train": 192, "n_test": 96}],
    "sampling": {"max_tokens": 20},
    "tracking": {"mlflow": "none"},
}


def stage_rate() -> float:
    """Tokens per second of the stage, from its first batch to its last result."""
    study = Study.model_validate(STUDY)
    with TemporaryDirectory() as folder:
        run = Run(study, Path(folder), Progress())
        prepare_questions(run, "worldfacts")
        outcome = run.run_stages(plan_sampling(run, study.cells()[0]))[0]
        return outcome.counts["tokens"] / outcome.working_seconds


def bare_rate() -> float:
    """Tokens per second of one `LLM.generate` over all prompts of that stage."""
    from vllm import SamplingParams

    from sgpu.engines import vllm as ours

    study = Study.model_validate(STUDY)
    with TemporaryDirectory() as folder:
        run = Run(study, Path(folder), Progress())
        prepare_questions(run, "worldfacts")
        questions = run.store.require("questions", Partition.of(dataset="worldfacts")).read(["question"])
        config = engine_of(run, study.models[0]).config
    llm = ours._build(config, ours._engine_arguments(config))
    settings = study.sampling
    texts = [settings.prompt.replace("{question}", row) for row in questions["question"].to_pylist()]
    conversations = [[{"role": "user", "content": text}] for text in texts]
    parameters = [
        SamplingParams(
            n=settings.n, temperature=settings.temperature, top_p=settings.top_p, top_k=settings.top_k,
            max_tokens=settings.max_tokens, stop=settings.stop, logprobs=0, seed=1024 * i,
        )
        for i in range(len(texts))
    ]  # fmt: skip
    # What is loaded at a first call is no part of the rate.
    llm.chat(conversations[:1], SamplingParams(max_tokens=3), use_tqdm=False)
    started = time.monotonic()
    outputs = llm.chat(conversations, parameters, use_tqdm=False)
    seconds = time.monotonic() - started
    return sum(len(answer.token_ids) for output in outputs for answer in output.outputs) / seconds


def _in_own_process(which: str) -> float:
    environment = {**os.environ, "OMP_NUM_THREADS": str(available_cores())}
    command = [sys.executable, "-m", "bench.sampling_stage", "--measure", which]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(json.loads(done.stdout.splitlines()[-1]))


def run() -> list[Any]:
    ours, bare = _in_own_process("stage"), _in_own_process("bare")
    return [
        {
            "name": "sampling stage over bare vLLM",
            "ours": ours,
            "baseline": bare,
            "ratio": ours / bare,
            "bound": BOUND,
            "unit": "tokens/s",
            "note": "288 questions, 20 answers, both started, both with our CPU sampler; bare: one call for "
            "all, without huge pages",
        }
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=["stage", "bare"])
    chosen = parser.parse_args().measure
    print(json.dumps(run() if chosen is None else {"stage": stage_rate, "bare": bare_rate}[chosen]()))
