"""What vLLM is started with: the part that needs no engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sgpu.engines.base import EngineConfig
from sgpu.engines.vllm import _engine_arguments

CONFIG = EngineConfig(model="m", device="cuda")


def test_on_several_gpus_nothing_is_fused_that_needs_a_compiler() -> None:
    several = _engine_arguments(replace(CONFIG, tensor_parallel_size=4))
    assert several["distributed_executor_backend"] == "mp"
    assert several["compilation_config"] == {"pass_config": {"fuse_allreduce_rms": False}}
    assert "compilation_config" not in _engine_arguments(CONFIG)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_memory_is_set_aside_for_videos(device: str) -> None:
    limits = _engine_arguments(replace(CONFIG, device=device))["limit_mm_per_prompt"]
    assert limits == {"image": 1, "video": 0}
