"""Rates of a GPU, with its limits beside them, for the planner: `make gpu`, or `python -m bench.gpu`.

It needs torch, transformers, gpytorch and their needs; models have random weights and real sizes, and
nothing is downloaded. vLLM's rates are measured where vLLM is. It writes bench/results/gpu/MACHINE.json
and, beside it, MACHINE.rates.yaml for `sgpu plan --rates`. ``--device cpu`` tries the suite itself at small
size, writes to bench-results/ and proves nothing of a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from bench.constructed import constructed_spectra
from bench.random_deberta import LARGE, TINY, write_deberta
from bench.random_models import LARGE_BERT, LLAMA_8B, MINILM, SMALL_LLAMA, TINY_BERT, write_bert, write_llama
from sgpu.encoders.cards import read_card
from sgpu.encoders.sentence import SentenceEncoder
from sgpu.engines.base import Engine, EngineConfig, Prompt, Sampling
from sgpu.engines.transformers import TransformersEngine
from sgpu.entailment.base import AnswerPair
from sgpu.entailment.deberta import DebertaBackend
from sgpu.gp import GPClassifier
from sgpu.hidden.extractor import HiddenStateExtractor
from sgpu.hidden.rows import AnsweredPrompt
from sgpu.spectrum import spectrum

RESULTS = {"cuda": Path("bench/results/gpu"), "cpu": Path("bench-results/gpu")}
# Where vLLM, Triton and PyTorch keep what they have compiled.
CACHES = ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
# Dense bfloat16 FLOP/s and bytes/s of memory, from the makers' data sheets, by a part of the device's name.
LIMITS = {
    "H100": (989e12, 3.35e12),
    "H200": (989e12, 4.8e12),
    "A100": (312e12, 2.04e12),
    "L4": (121e12, 0.3e12),
}


@dataclass(frozen=True)
class Rate:
    """A measured number, its name in `sgpu.plan.rates` and its share of the GPU's limit where it has them."""

    name: str
    value: float
    unit: str
    note: str
    planner: str | None = None
    share: float | None = None


@dataclass(frozen=True)
class Scale:
    """How much is measured: on a GPU enough to fill it, on a CPU enough to see that the suite runs."""

    device: str
    llama: dict[str, int]
    prompts: int
    texts: int
    encoders: dict[str, dict[str, int]]
    deberta: dict[str, int]
    pairs: int
    cell_rows: int
    pool_rows: int


GPU = Scale(
    "cuda", LLAMA_8B, 48, 40_000, {"texts_per_s": MINILM, "large_texts_per_s": LARGE_BERT}, LARGE, 8_000,
    9_000, 1_000_000,
)  # fmt: skip
CPU = Scale("cpu", SMALL_LLAMA, 2, 60, {"texts_per_s": TINY_BERT}, TINY, 20, 100, 200)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=sorted(RESULTS), default="cuda")
    device = parser.parse_args().device
    if device == "cuda" and not torch.cuda.is_available():
        print("torch sees no GPU: nothing is measured. `--device cpu` tries the suite", file=sys.stderr)
        return 1
    suite(device)
    return 0


def run() -> list[dict[str, Any]]:
    """For `python -m bench gpu`: rates have no baseline but the GPU's limit, and no bound."""
    return [
        {
            "name": rate.name, "ours": rate.value, "baseline": None, "ratio": rate.share, "bound": None,
            "unit": rate.unit, "note": f"{rate.note}; ratio: to the GPU's limit",
        }
        for rate in suite("cuda")
    ]  # fmt: skip


def suite(device: str) -> list[Rate]:
    """Measure, tell and write every rate; what is missing is named."""
    missing = [name for name in ("vllm",) if importlib.util.find_spec(name) is None]
    for name in missing:
        print(f"{name} is not installed: what needs it is left out")
    rates = []
    with TemporaryDirectory(prefix="sgpu-gpu-") as folder:
        for rate in measured(GPU if device == "cuda" else CPU, Path(folder), "vllm" not in missing):
            share = "" if rate.share is None else f", {rate.share:.1%} of the GPU's limit"
            print(f"{rate.name}: {rate.value:,.4g} {rate.unit} ({rate.note}{share})", flush=True)
            rates.append(rate)
    print(f"written: {', '.join(map(str, write(rates, RESULTS[device], machine(device), missing)))}")
    return rates


def measured(scale: Scale, folder: Path, vllm: bool) -> Iterator[Rate]:
    """Every rate, the language models first: they are what a plan turns on."""
    llama = write_llama(folder / "llama", scale.llama, scale.device)
    config = EngineConfig(
        model=str(llama), device=scale.device, max_model_len=2048, max_num_seqs=512,
        dtype="bfloat16" if scale.device == "cuda" else "float32",
    )  # fmt: skip
    yield from _engine("transformers", lambda: TransformersEngine(config), scale, llama)
    engines: dict[str, Callable[[EngineConfig], Engine]] = {"transformers": TransformersEngine}
    if vllm and scale.device == "cuda":
        for cache in CACHES:  # empty at the first start, full at the second
            os.environ[cache] = str(folder / "caches" / cache)
        from sgpu.engines.vllm import VLLMEngine

        engines["vllm"] = VLLMEngine
        yield from _engine("vllm", lambda: VLLMEngine(config), scale, llama)
        if torch.cuda.device_count() > 1:
            both = replace(config, tensor_parallel_size=2)
            yield from _engine("vllm on two GPUs", lambda: VLLMEngine(both), scale, llama)
    yield from (_images(name, make, scale, folder / "image-model") for name, make in engines.items())
    yield _hidden(config, scale)
    for planner, size in scale.encoders.items():
        yield _encoding(write_bert(folder / planner, size), planner, scale)
    yield _entailment(write_deberta(folder / "deberta", size=scale.deberta), scale)
    yield _eigenvalues()
    yield _fit(f"fit of a cell, {scale.cell_rows:,} rows", scale.cell_rows, 128, scale.device)
    yield _fit(f"pooled fit, {scale.pool_rows:,} rows", scale.pool_rows, 256, scale.device)


def timed(work: Callable[[], object], device: str) -> float:
    """Seconds of the second of two runs: the first one builds kernels and fills caches."""
    seconds = 0.0
    for _ in range(2):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return seconds


def limits(device: str) -> tuple[float, float] | None:
    """(FLOP/s, bytes/s) that the device can do at most, where its data sheet is known."""
    name = torch.cuda.get_device_name() if device == "cuda" else ""
    return next((limit for part, limit in LIMITS.items() if part in name), None)


def _questions(count: int) -> list[Prompt]:
    clue = "Which city is meant by the following words? " + "It is old. " * 20
    return [Prompt((("user", f"Question {i}: {clue}"),), 1024 * (1 + i)) for i in range(count)]


def _engine(name: str, start: Callable[[], Engine], scale: Scale, folder: Path) -> Iterator[Rate]:
    began = time.perf_counter()
    engine = start()
    asked = _questions(scale.prompts)
    engine.sample(asked[:1], Sampling(n=1, max_tokens=2))
    minutes = (time.perf_counter() - began) / 60
    yield Rate(f"{name}, start", minutes, "minutes", "to the first token", _planner(name, "start_minutes"))
    parameters = sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 2
    sampling = Sampling(n=20, max_tokens=64, stop=())
    tokens = 0

    def sample() -> None:
        nonlocal tokens
        tokens = sum(answer.n_tokens for one in engine.sample(asked, sampling) for answer in one.answers)

    seconds = timed(sample, scale.device)
    limit = limits(scale.device)
    note = f"{parameters / 1e9:.2f}e9 parameters, {20 * scale.prompts} answers at once"
    # Each token multiplies every parameter once: two operations.
    share = None if limit is None else tokens / seconds * 2 * parameters / limit[0]
    yield Rate(f"{name}, decode", tokens / seconds, "tokens/s", note, _decode(name, parameters), share)
    read = sum(
        generation.n_prompt_tokens for generation in engine.sample(asked[:1], Sampling(n=1, max_tokens=1))
    )
    seconds = timed(lambda: engine.sample(asked, Sampling(n=1, max_tokens=1)), scale.device)
    rate = read * scale.prompts / seconds
    share = None if limit is None else rate * 2 * parameters / limit[0]
    planner = None if share is None else _planner(name, "flops_share")
    yield Rate(f"{name}, prefill", rate, "tokens/s", note, planner, share)
    engine.close()
    yield from _second_start(name, start, scale.device)


def _second_start(name: str, start: Callable[[], Engine], device: str) -> Iterator[Rate]:
    """Start an engine again on the GPU that one has just left, with what that one has compiled."""
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        yield Rate(f"{name}, free after it was closed", free / total, "of the GPU", "before the next start")
    began = time.perf_counter()
    engine = start()
    engine.sample(_questions(1), Sampling(n=1, max_tokens=2))
    minutes = (time.perf_counter() - began) / 60
    yield Rate(f"{name}, second start", minutes, "minutes", "compile caches full")
    engine.close()


def _images(name: str, make: Callable[[EngineConfig], Engine], scale: Scale, folder: Path) -> Rate:
    """Measure what images cost beside the model: a tiny one, 20 answers to each question."""
    from tests.engines.tiny_image_models import build_qwen2_5_vl, picture

    if not folder.is_dir():
        build_qwen2_5_vl(folder)
    engine = make(EngineConfig(model=str(folder), device=scale.device, dtype="float32", max_num_seqs=512))
    side = 448 if scale.device == "cuda" else 56
    asked = [Prompt((("user", "What is it?"),), i, picture(i, side, side)) for i in range(scale.prompts)]
    sampling = Sampling(n=20, max_tokens=4, stop=())
    seconds = timed(lambda: engine.sample(asked, sampling), scale.device)
    engine.close()
    return Rate(f"{name}, images", len(asked) / seconds, "images/s", f"{side} x {side} pixels, 20 answers")


def _decode(name: str, parameters: float) -> str | None:
    """The planner's rate is of 8e9 parameters: another size is not written as if it were."""
    return _planner(name, "decode_tokens_per_s") if 7e9 < parameters < 9e9 else None


def _planner(name: str, rate: str) -> str | None:
    """Return the planner's name of an engine's rate; it knows engines on one GPU."""
    return None if " " in name else f"{name}.{rate}"


def _hidden(config: EngineConfig, scale: Scale) -> Rate:
    extractor = HiddenStateExtractor(config, [1])
    asked = _questions(scale.prompts)
    rendered = extractor._checkpoint.render(asked, 1)
    answers = [[100 + i, 101, 102, 103, 104, 105] for i in range(20)]

    given = [
        AnsweredPrompt(prompt, text.sha256, answers) for prompt, text in zip(asked, rendered, strict=True)
    ]
    seconds = timed(lambda: extractor.states(given), scale.device)
    return Rate("hidden states", 20 * scale.prompts / seconds, "answers/s", "one layer")


def _encoding(folder: Path, planner: str, scale: Scale) -> Rate:
    encoder = SentenceEncoder(read_card(folder), folder, "auto", scale.device)
    texts = [f"answer {i}: the city of {i * 7919}" for i in range(scale.texts)]
    seconds = timed(lambda: encoder.encode(texts), scale.device)
    note = f"{encoder.dim} dimensions, {encoder.dtype}, short texts"
    return Rate(f"encoder, {encoder.dim}", len(texts) / seconds, "texts/s", note, f"encoding.{planner}")


def _entailment(folder: Path, scale: Scale) -> Rate:
    backend = DebertaBackend(str(folder), device=scale.device)
    pairs = [AnswerPair("Which city?", f"It is {i}.", f"The city of {i + 1}") for i in range(scale.pairs)]
    seconds = timed(lambda: backend.classify(pairs), scale.device)
    note = f"{scale.deberta['num_hidden_layers']} layers, {backend.dtype}"
    return Rate("entailment", len(pairs) / seconds, "pairs/s", note, "entailment.pairs_per_s")


def _eigenvalues() -> Rate:
    """Of 20 answers of 384 numbers; on the CPU everywhere, as nothing is gained by a copy to the GPU."""
    vectors = np.random.default_rng(0).normal(size=(500, 20, 384))
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    return Rate("eigenvalues", len(vectors) / timed(lambda: spectrum(vectors), "cpu"), "spectra/s", "CPU")


def _fit(name: str, rows: int, inducing: int, device: str) -> Rate:
    drawn = constructed_spectra(min(rows, 5_000), seed=1)
    times = -(-rows // len(drawn.label))
    spectra, label = np.tile(drawn.spectra, (times, 1))[:rows], np.tile(drawn.label, times)[:rows]
    spectra = spectra + np.random.default_rng(0).normal(0, 1e-3, spectra.shape)
    start = time.perf_counter()
    GPClassifier(inducing=inducing).fit(spectra, label, device=device)
    return Rate(name, time.perf_counter() - start, "s", f"{inducing} inducing points, float64, {device}")


def machine(device: str) -> str:
    """What the figures are of."""
    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


def write(rates: list[Rate], folder: Path, machine: str, missing: list[str]) -> list[Path]:
    """The figures as JSON, and those that the planner has a name for as YAML; both named by the machine."""
    from sgpu.provenance import environment, utc_now

    name = "-".join(machine.lower().replace("/", " ").split())
    folder.mkdir(parents=True, exist_ok=True)
    figures, planner = folder / f"{name}.json", folder / f"{name}.rates.yaml"
    content: dict[str, Any] = {
        "at": utc_now(), "machine": machine, "missing": missing, "environment": environment(),
        "rates": [vars(rate) for rate in rates],
    }  # fmt: skip
    figures.write_text(json.dumps(content, indent=1) + "\n")
    sections: dict[str, list[str]] = {}
    for rate in rates:
        if rate.planner is not None:
            section, _, key = rate.planner.partition(".")
            value = rate.share if key == "flops_share" else rate.value
            note = f"{machine}: {rate.note}"
            sections.setdefault(section, []).append(
                f"  {key}: {{value: {value:.6g}, origin: measured, note: {json.dumps(note)}}}\n"
            )
    planner.write_text("".join(f"{section}:\n{''.join(lines)}" for section, lines in sections.items()))
    return [figures, planner]


if __name__ == "__main__":
    sys.exit(main())
