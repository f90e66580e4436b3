"""Settings that every test runs under: one thread a process, nothing from the network, nothing sent out."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from tests.browser import NO_BROWSER

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
    # Without it every command would log to runs/mlflow.db of the folder in which the tests are run.
    "MLFLOW_TRACKING_URI": "none",
}.items():
    os.environ.setdefault(_name, _value)

# A busy machine makes a single example slow; what takes too long for another reason ends at pytest's timeout.
# A machine with a GPU may lack the package.
with suppress(ImportError):
    from hypothesis import settings

    settings.register_profile("sgpu", deadline=None)
    settings.load_profile("sgpu")


# Where tests start clusters, engines and commands. A file is one process's: what takes minutes is begun
# first, so that no process works on it alone at the end.
LONG = ("pipelines", "runtime", "stages", "nights")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.parent.name not in LONG)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Pages that nobody looked at are said in a line of their own, with what to install."""
    skipped = [report.longrepr for report in terminalreporter.getreports("skipped")]
    unseen = sum(NO_BROWSER in str(reason) for reason in skipped)
    if unseen:
        terminalreporter.write_line(f"{unseen} tests of pages did not run: {NO_BROWSER}", yellow=True)
