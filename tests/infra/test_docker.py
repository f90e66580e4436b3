"""The Dockerfiles: what they copy exists, who runs is not root, what is installed is pinned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.infra.manifests import INFRA, ROOT

FILES = sorted((INFRA / "docker").glob("*.Dockerfile"))
IDS = [path.name for path in FILES]
LOCK = INFRA / "docker" / "cluster.txt"


def _instructions(path: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def _pins(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[\w.+!]+", line) for line in lines)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in (x.split("==") for x in lines)}


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_what_is_copied_exists_and_is_let_in(path: Path) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name, rest in _instructions(path):
        if name == "COPY" and not rest.startswith("--from="):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert any(source == one or source.startswith(f"{one}/") for one in allowed), source


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_the_last_user_is_not_root(path: Path) -> None:
    last = [rest for name, rest in _instructions(path) if name == "USER"][-1]
    assert last == "1000:1000"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_the_base_image_is_pinned_and_the_same_in_all_steps(path: Path) -> None:
    bases = {rest.split()[0] for name, rest in _instructions(path) if name == "FROM"}
    assert len(bases) == 1
    assert re.search(r":\d+\.\d+\.\d+-", bases.pop())


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_packages_come_from_the_locks_alone(path: Path) -> None:
    calls = re.findall(r"pip install ([^&\n]+)", re.sub(r"\\\n", " ", path.read_text()))
    assert calls and all("--no-deps" in call for call in calls)


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_no_secret_enters_a_layer(path: Path) -> None:
    assert not re.search(
        r"(?i)^(ARG|ENV).*(password|secret|token\b(?!$)|_key)\w*=(?!token)", path.read_text(), re.M
    )


def test_the_cpu_image_has_the_python_and_the_torch_of_make_install() -> None:
    text = (INFRA / "docker" / "cpu.Dockerfile").read_text()
    assert "FROM python:3.11." in text
    assert re.search(r"torch==([\d.]+)", text)[1] == _pins(INFRA / "locks" / "cpu.txt")["torch"]  # type: ignore[index]


@pytest.mark.parametrize("lock", ["cpu.txt", "gpu.txt"])
def test_the_clusters_lock_contradicts_no_other(lock: str) -> None:
    own, other = _pins(LOCK), _pins(INFRA / "locks" / lock)
    assert {name for name in own.keys() & other.keys() if own[name] != other[name]} == set()


def test_dagsters_storage_is_of_its_release() -> None:
    minor, patch = _pins(INFRA / "locks" / "cpu.txt")["dagster"].split(".")[1:]
    # Integrations of Dagster 1.M.P are released as 0.(M+16).P.
    assert _pins(LOCK)["dagster-postgres"] == f"0.{int(minor) + 16}.{patch}"
