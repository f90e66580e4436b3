"""An engine waits for the memory of the one before it, and not for ever."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sgpu.runtime import gpu_memory
from sgpu.runtime.gpu_memory import wait_for_memory


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that says what a file says of the GPUs that it is asked for."""
    program = tmp_path / "nvidia-smi"
    answer = f'[ "$4" = 0,1 ] && cat {tmp_path}/memory && mv {tmp_path}/next {tmp_path}/memory'
    program.write_text(f"#!/bin/sh\n{answer}\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(gpu_memory, "ASK_S", 0.01)
    (tmp_path / "memory").write_text("80000 MiB, 81559 MiB\n20000 MiB, 81559 MiB\n")
    return tmp_path


def test_it_waits_until_all_its_gpus_are_free(nvidia_smi: Path) -> None:
    (nvidia_smi / "next").write_text("80000 MiB, 81559 MiB\n80000 MiB, 81559 MiB\n")
    assert wait_for_memory(60.0)


def test_it_gives_up_after_a_while(nvidia_smi: Path) -> None:
    began = time.monotonic()
    assert not wait_for_memory(0.2) and time.monotonic() - began < 10


def test_a_gpu_that_cannot_be_asked_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert wait_for_memory(60.0)
