"""The device under test: the CPU at any time, so that the suite itself is tried, and a GPU with `-m gpu`."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return str(request.param)
