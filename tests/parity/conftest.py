from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench import peers


@pytest.fixture(scope="session")
def peer() -> Callable[[str], Any]:
    """``peer("uqlm.nli.entropy_utils")`` is that module."""
    if not peers.FOLDER.is_dir():
        pytest.skip("no peer libraries here; `make parity` gets them")
    return peers.peer
