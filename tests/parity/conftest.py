"""Loads single modules of peer libraries from `.parity`, without what else their packages would import."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / ".parity"
PACKAGES = (
    "lm_polygraph", "lm_polygraph.estimators", "lm_polygraph.ue_metrics", "lm_polygraph.utils",
    "uqlm", "uqlm.nli",
)  # fmt: skip


class Peer:
    """``peer("uqlm.nli.entropy_utils")`` is that module."""

    def __call__(self, module: str) -> Any:
        return importlib.import_module(module)


@pytest.fixture(scope="session")
def peer() -> Peer:
    if not FOLDER.is_dir():
        pytest.skip("no peer libraries here; `make parity` gets them")
    for name in PACKAGES:
        # Their __init__ files import every estimator with every dependency; a module alone needs few.
        package = types.ModuleType(name)
        package.__path__ = [str(FOLDER / name.replace(".", "/"))]
        sys.modules.setdefault(name, package)
    # A decorator of theirs for configuration files; what it decorates is called as it is here.
    common = types.ModuleType("lm_polygraph.utils.common")
    common.polygraph_module_init = lambda function: function  # type: ignore[attr-defined]
    sys.modules["lm_polygraph.utils.common"] = common
    return Peer()
