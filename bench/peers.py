"""Single modules of peer libraries from `.parity`, without all that their packages would import."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / ".parity"
PACKAGES = (
    "lm_polygraph", "lm_polygraph.estimators", "lm_polygraph.stat_calculators", "lm_polygraph.ue_metrics",
    "lm_polygraph.utils", "uqlm", "uqlm.nli",
)  # fmt: skip


def peer(module: str) -> Any:
    """A module such as "uqlm.nli.entropy_utils"; ModuleNotFoundError before `make parity`."""
    for name in PACKAGES:
        # Their __init__ files import every estimator with every dependency; a module alone needs few.
        package = types.ModuleType(name)
        package.__path__ = [str(FOLDER / name.replace(".", "/"))]
        sys.modules.setdefault(name, package)
    # What their modules import of these is a decorator for configuration files, and a name in annotations.
    common = types.ModuleType("lm_polygraph.utils.common")
    common.polygraph_module_init = lambda function: function  # type: ignore[attr-defined]
    model = types.ModuleType("lm_polygraph.utils.model")
    model.Model = object  # type: ignore[attr-defined]
    for stub in (common, model):
        sys.modules.setdefault(stub.__name__, stub)
    return importlib.import_module(module)
