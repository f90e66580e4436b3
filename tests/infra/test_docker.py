"""The Dockerfiles: what they copy exists, who runs is not root, what is installed is pinned."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.infra.manifests import INFRA, ROOT

FILES = sorted((INFRA / "docker").glob("*.Dockerfile"))
IDS = [path.name for path in FILES]
LOCK = INFRA / "docker" / "cluster.txt"
SECRET = re.compile(r"(?i)password|secret|token|_key\b")


def _instructions(path: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def _variables(path: Path) -> list[str]:
    """Names that ENV and ARG set, on however many lines they stand."""
    return [
        name
        for kind, rest in _instructions(path)
        if kind in {"ENV", "ARG"}
        for name in re.findall(r"(?:^|\s)(\w+)(?==|$|\s+\S+$)", rest)
    ]


def _environment(path: Path) -> dict[str, str]:
    """What ENV sets in the step that becomes the image."""
    steps = _instructions(path)
    last = max(place for place, (kind, _) in enumerate(steps) if kind == "FROM")
    pairs = [pair for kind, rest in steps[last:] if kind == "ENV" for pair in rest.split()]
    return dict(pair.split("=", 1) for pair in pairs)


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
    assert [name for name in _variables(path) if SECRET.search(name)] == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ARG HF_TOKEN", "HF_TOKEN"),
        ("ARG HF_TOKEN=hf_abc", "HF_TOKEN"),
        ("ENV OPENAI_API_KEY sk-abc", "OPENAI_API_KEY"),
        ("ENV A=1 \\\n    PGPASSWORD=hunter2 \\\n    B=2", "PGPASSWORD"),
    ],
)
def test_the_search_for_secrets_finds_one_on_any_line(tmp_path: Path, line: str, name: str) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM python:3.12.12-slim\n{line}\nUSER 1000:1000\n")
    assert [one for one in _variables(tmp_path / "Dockerfile") if SECRET.search(one)] == [name]


def test_all_images_have_one_python_to_the_patch() -> None:
    """Ray refuses a node whose Python is not that of the head (`check_version_info`, level "patch")."""
    bases = {rest.split()[0] for path in FILES for kind, rest in _instructions(path) if kind == "FROM"}
    assert len(bases) == 1 and re.fullmatch(r"python:3\.12\.\d+-\S+", bases.pop())
    # Debian's own Python is another one.
    assert all("python3" not in rest for path in FILES for kind, rest in _instructions(path) if kind == "RUN")


def test_what_nodes_exchange_is_of_one_version_in_both_locks() -> None:
    cpu, gpu = (_pins(INFRA / "locks" / f"{kind}.txt") for kind in ("cpu", "gpu"))
    shared = ["ray", "cloudpickle", "pyarrow", "numpy", "pandas", "polars", "deltalake", "torch"]
    assert {name: cpu[name] for name in shared} == {name: gpu[name] for name in shared}


def test_the_cpu_image_has_the_torch_of_make_install() -> None:
    text = (INFRA / "docker" / "cpu.Dockerfile").read_text()
    assert re.search(r"torch==([\d.]+)", text)[1] == _pins(INFRA / "locks" / "cpu.txt")["torch"]  # type: ignore[index]


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_a_login_shell_finds_the_commands(path: Path, tmp_path: Path) -> None:
    """Ray's launcher runs all under `bash --login`; /etc/profile sets PATH anew, then reads profile.d."""
    [setup] = [rest for kind, rest in _instructions(path) if kind == "RUN" and "/etc/profile.d/" in rest]
    [written] = re.findall(r"(echo '[^']*') > /etc/profile\.d/\w+\.sh", setup)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    script = subprocess.check_output(["sh", "-c", written], text=True, env=environment)
    after = f'PATH=/usr/local/bin:/usr/bin:/bin\n{script}\necho "$PATH"'
    found = subprocess.check_output(["bash", "-c", after], text=True, env=environment).strip()
    assert found.split(":")[0] == _environment(path)["PATH"].split(":")[0] == "/opt/sgpu/bin"


@pytest.mark.parametrize(
    ("image", "packages"),
    [("cpu", {"openssh-client", "procps", "rsync", "wget"}), ("gpu", {"g++", "gcc", "libc6-dev", "wget"})],
)
def test_what_ray_s_launcher_and_compilers_need_is_installed(image: str, packages: set[str]) -> None:
    """Ray's autoscaler calls ssh on the head, which Debian's rsync does not bring."""
    [setup] = [
        rest for kind, rest in _instructions(INFRA / "docker" / f"{image}.Dockerfile")
        if kind == "RUN" and "apt-get" in rest
    ]  # fmt: skip
    assert packages <= set(setup.split())


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_all_weights_go_to_the_shared_volume(path: Path) -> None:
    """Those of the Hub, and those converted or trained from packages (`sgpu.models.weights.cache_dir`)."""
    found = _environment(path)
    assert (found["HF_HOME"], found["SGPU_CACHE"]) == ("/cache/huggingface", "/cache/sgpu")


@pytest.mark.parametrize("lock", ["cpu.txt", "gpu.txt"])
def test_the_clusters_lock_contradicts_no_other(lock: str) -> None:
    own, other = _pins(LOCK), _pins(INFRA / "locks" / lock)
    assert {name for name in own.keys() & other.keys() if own[name] != other[name]} == set()


def test_dagsters_storage_is_of_its_release() -> None:
    minor, patch = _pins(INFRA / "locks" / "cpu.txt")["dagster"].split(".")[1:]
    # Integrations of Dagster 1.M.P are released as 0.(M+16).P.
    assert _pins(LOCK)["dagster-postgres"] == f"0.{int(minor) + 16}.{patch}"
