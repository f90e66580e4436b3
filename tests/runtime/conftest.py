"""The toy stage as a module that Ray's workers can import too."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sgpu.runtime.session import ray_session

TOY = Path(__file__).parent / "toy"


def load_toy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("toy_stage", TOY / "toy_stage.py")
    assert spec and spec.loader
    module = sys.modules["toy_stage"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def toy() -> Iterator[ModuleType]:
    """The toy stage inside one Ray session."""
    os.environ["PYTHONPATH"] = f"{TOY}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with ray_session():
        yield load_toy()
