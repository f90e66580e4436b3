"""vLLM's engine on a GPU: the contract of engines, against transformers, and started twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.random_models import write_llama
from sgpu.engines.base import EngineConfig, Sampling
from sgpu.engines.vllm import VLLMEngine
from tests.contracts.engine_contract import EngineContract
from tests.gpu.test_same_numbers import plain_logprobs, prompts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
# A small share of the GPU: two engines are never there at once, but others may use it.
OPTIONS = {"gpu_memory_utilization": 0.2, "enforce_eager": True}
# Of log-probabilities: vLLM's kernels round in another order, in float32 as well.
LOGPROB = 2e-2


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def settings(llama: Path) -> EngineConfig:
    pytest.importorskip("vllm")
    return EngineConfig(
        model=str(llama), dtype="float32", device="cuda", max_model_len=1024, max_num_seqs=64, options=OPTIONS
    )


@pytest.fixture(scope="module")
def served(settings: EngineConfig) -> Iterator[VLLMEngine]:
    engine = VLLMEngine(settings)
    yield engine
    engine.close()


class TestVLLMEngine(EngineContract):
    @pytest.fixture(scope="class")
    def engine(self, served: VLLMEngine) -> VLLMEngine:
        return served


def test_log_probabilities_of_50_prompts_are_those_of_transformers(served: VLLMEngine, llama: Path) -> None:
    asked = prompts(50)
    found = served.sample(asked, Sampling(n=2, max_tokens=8))
    for rendered, generation in zip(served._render(asked, 8), found, strict=True):
        for answer in generation.answers:
            expected = plain_logprobs(llama, list(rendered.token_ids), list(answer.token_ids))
            np.testing.assert_allclose(answer.token_logprobs, expected, atol=LOGPROB)


def test_the_mass_of_a_judges_yes_and_no_is_that_of_transformers(served: VLLMEngine, llama: Path) -> None:
    asked = prompts(10)
    mass = served.next_token_logprobs(asked, ["y", "n"])
    for rendered, found in zip(served._render(asked, 1), mass, strict=True):
        ids = [served._tokenizer.convert_tokens_to_ids(letter) for letter in "yn"]
        expected = [plain_logprobs(llama, list(rendered.token_ids), [token])[0] for token in ids]
        np.testing.assert_allclose(found, expected, atol=LOGPROB)


def test_no_kernel_is_compiled_for_a_sampler_that_seeded_requests_never_use(served: VLLMEngine) -> None:
    assert os.environ["VLLM_USE_FLASHINFER_SAMPLER"] == "0"


def test_an_engine_that_was_ended_leaves_its_memory_to_the_next(settings: EngineConfig) -> None:
    before = None
    for _ in range(2):
        engine = VLLMEngine(settings)
        said = engine.sample(prompts(3), Sampling(n=4, max_tokens=6))
        engine.close()
        free, _ = torch.cuda.mem_get_info()
        if before is not None:
            assert [g.answers for g in said] == [g.answers for g in before[0]]
            assert free > before[1] - 2**28
        before = said, free
