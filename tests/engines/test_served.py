"""The OpenAI engine against vLLM's server on the loopback address."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sgpu.engines.base import EngineConfig
from sgpu.engines.openai import OpenAIEngine
from tests.contracts.engine_contract import EngineContract
from tests.engines.served_model import SERVED_NAME, served_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_model(tmp_path_factory.mktemp("serve")) as url:
        yield url


@pytest.fixture(scope="module")
def engine(server: str) -> Iterator[OpenAIEngine]:
    engine = OpenAIEngine(EngineConfig(model=SERVED_NAME, base_url=server))
    yield engine
    engine.close()


class TestContract(EngineContract):
    pass
