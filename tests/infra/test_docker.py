"""The Dockerfiles against the locks, the repository, and the shell that Ray's launcher uses."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.infra.manifests import INFRA, ROOT

FILES = sorted((INFRA / "docker").glob("*.Dockerfile"))
SHARED = ["ray", "cloudpickle", "pyarrow", "numpy", "pandas", "polars", "deltalake", "torch"]
SECRET = re.compile(r"(?i)password|secret|token\b|_key\b")


def read_instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    return [(kind, rest) for kind, rest in (line.split(maxsplit=1) for line in lines)]


PIN = re.compile(r"([A-Za-z0-9._-]+)==([\w.+!]+)( --hash=sha256:[0-9a-f]{64})?")


def read_pins(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    pins = [pin.groups() for pin in map(PIN.fullmatch, lines) if pin]
    assert len(pins) == len(lines) and len({bool(sha256) for _, _, sha256 in pins}) == 1  # all, or none
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version, _ in pins}


def find_faults(text: str) -> list[str]:
    """Return what is wrong with a Dockerfile by itself."""
    steps = read_instructions(text)
    of_kind = {kind: [rest for found, rest in steps if found == kind] for kind, _ in steps}
    names = " ".join(re.sub(r"=\S*", " ", rest) for kind in ("ENV", "ARG") for rest in of_kind.get(kind, []))
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copies = [rest.split()[:-1] for rest in of_kind.get("COPY", []) if "--from=" not in rest]
    copied = [source for sources in copies for source in sources]
    installed = re.findall(r"pip install ([^&\n]+)", text.replace("\\\n", " "))
    faults = {
        "base": {rest.split()[0] for rest in of_kind["FROM"]} != {"python:3.12.12-slim-bookworm"},
        "root": of_kind.get("USER", [""])[-1] != "1000:1000",
        "secret": [word for word in names.split() if SECRET.search(word)],
        "absent": [one for one in copied if not (ROOT / one).exists()],
        "ignored": [one for one in copied if not any(f"{one}/".startswith(f"{root}/") for root in allowed)],
        "unlocked": [call for call in installed if "--no-deps" not in call],
    }
    return [name for name, found in faults.items() if found]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_dockerfile_has_no_fault(path: Path) -> None:
    assert find_faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [("FROM python:3.12-slim", "base"), ("USER root", "root"), ("ARG HF_TOKEN", "secret"),
     ("ENV A=1 \\\n    PGPASSWORD=hunter2 \\\n    B=2", "secret"), ("COPY infra/none /x", "ignored"),
     ("COPY sgpu/none /x", "absent"), ("RUN pip install torch", "unlocked")],
)  # fmt: skip
def test_a_planted_fault_is_found(line: str, fault: str) -> None:
    assert fault in find_faults(f"{FILES[0].read_text(encoding='utf-8')}\n{line}\n")


def test_versions_agree_between_the_locks_and_the_images() -> None:
    cpu, gpu = (read_pins(INFRA / "locks" / f"{kind}.txt") for kind in ("cpu", "gpu"))
    own = read_pins(INFRA / "docker" / "cluster.txt")
    assert {name: cpu[name] for name in SHARED} == {name: gpu[name] for name in SHARED}
    for other in (cpu, gpu):
        assert {name for name in own.keys() & other.keys() if own[name] != other[name]} == set()
    assert f"torch=={cpu['torch']}" in (INFRA / "docker" / "cpu.Dockerfile").read_text()
    # Integrations of Dagster 1.M.P are released as 0.(M+16).P.
    minor, patch = cpu["dagster"].split(".")[1:]
    assert own["dagster-postgres"] == f"0.{int(minor) + 16}.{patch}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_login_shell_finds_the_commands(path: Path, tmp_path: Path) -> None:
    """Ray's launcher runs all under `bash --login`; /etc/profile sets PATH anew, then reads profile.d."""
    steps = read_instructions(path.read_text(encoding="utf-8"))
    [setup] = [rest for kind, rest in steps if kind == "RUN" and "/etc/profile.d/" in rest]
    [written] = re.findall(r"(echo '[^']*') > /etc/profile\.d/\w+\.sh", setup)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    script = subprocess.check_output(["sh", "-c", written], text=True, env=environment)
    after = f'PATH=/usr/local/bin:/usr/bin:/bin\n{script}\necho "$PATH"'
    found = subprocess.check_output(["bash", "-c", after], text=True, env=environment).strip()
    assert found.split(":")[0] == "/opt/sgpu/bin"
    assert any(kind == "ENV" and "PATH=/opt/sgpu/bin:" in rest for kind, rest in steps)
