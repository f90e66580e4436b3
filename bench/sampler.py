"""Generated tokens per second of SmolLM2-135M on the CPU, with vLLM's sampler and with ours.

One process measures one variant, as the stand-ins change vLLM for the whole process:
    python bench/sampler.py --questions 16 [--stock]
Processor seconds are the figure to compare on a shared machine.
"""

from __future__ import annotations

import argparse
import time

from sgpu.engines import cpu_sampler
from sgpu.engines.base import Prompt, Sampling
from sgpu.engines.vllm import VLLMEngine
from sgpu.models import engine_config, model_card
from sgpu.seeds import derived_seed

CITIES = "Paris Lyon Rome Milan Madrid Seville Berlin Munich London Leeds Oslo Bergen Tokyo Osaka Cairo Lagos"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=4, help="20 answers each are drawn at once")
    parser.add_argument("--stock", action="store_true", help="leave vLLM's sampler as it is")
    arguments = parser.parse_args()
    if arguments.stock:
        cpu_sampler.install = lambda: False
    engine = VLLMEngine(engine_config(model_card("smollm2-135m-instruct"), device="cpu"))
    prompts = [
        Prompt((("user", f"In which country is {city}? Answer as briefly as possible."),), derived_seed(city))
        for city in CITIES.split()[: arguments.questions]
    ]
    engine.sample(prompts[:1], Sampling(max_tokens=3))  # what is compiled or loaded at the first call
    wall, processor = time.perf_counter(), time.process_time()
    generations = engine.sample(prompts, Sampling())
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    tokens = sum(answer.n_tokens for generation in generations for answer in generation.answers)
    print(
        f"{20 * arguments.questions} sequences, {'stock' if arguments.stock else 'fast'} sampler: "
        f"{tokens} tokens, {tokens / wall:.0f}/s, {tokens / processor:.0f} per processor second"
    )


if __name__ == "__main__":
    main()
