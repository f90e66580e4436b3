"""Which cluster is meant, and what is told where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.benchmark import benchmark_study
from sgpu.errors import UsageError
from sgpu.runtime.session import named_cluster, ray_session
from tests.cluster.nodes import free_port


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379", "[::1]:6379", "head.example:6379"])
def test_an_address_is_taken_as_it_is(address: str) -> None:
    assert named_cluster(address) == address


@pytest.mark.parametrize("address", [None, "", "local"])
def test_without_an_address_ray_is_local(address: str | None) -> None:
    assert named_cluster(address) is None


def test_the_environment_names_a_cluster_unless_the_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert named_cluster(None) == "10.0.0.1:6379"
    assert named_cluster("10.0.0.2:6379") == "10.0.0.2:6379"
    assert named_cluster("local") is None


@pytest.mark.parametrize("address", ["head", "http://127.0.0.1:8265", "10.0.0.1:6379/x", "head:port"])
def test_what_is_no_address_is_refused_with_those_that_are(address: str) -> None:
    with pytest.raises(UsageError, match=r"--address is .*auto .*host:port "):
        named_cluster(address)


def test_an_address_of_the_environment_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with pytest.raises(UsageError, match="RAY_ADDRESS is 'http"):
        named_cluster(None)


def test_a_port_where_nobody_listens_is_told_at_once() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(UsageError, match=f"no reply from {address}"), ray_session(address):
        pass


def test_a_port_beyond_the_last_is_told() -> None:
    with (
        pytest.raises(UsageError, match=r"no reply from 127\.0\.0\.1:99999"),
        ray_session("127.0.0.1:99999"),
    ):
        pass


@pytest.mark.parametrize("address", ["ray://head:10001", "ray://head"])
def test_an_address_of_rays_client_is_refused_with_the_way_that_works(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ray job submit --address http://HEAD:8265 -- sgpu benchmark"):
        benchmark_study(tmp_path / "study.yaml", None, [], address)
