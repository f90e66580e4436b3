"""Settings that every test runs under: one thread a process, nothing from the network, nothing sent out."""

from __future__ import annotations

import os

pytest_plugins = ["tests.object_store"]

# Before torch, Ray or a tokenizer is imported by a test module. Child processes inherit all of it.
for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "DAGSTER_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "VLLM_NO_USAGE_STATS": "1",
    "MPLBACKEND": "Agg",
}.items():
    os.environ.setdefault(_name, _value)
