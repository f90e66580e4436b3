"""What we start listens on this machine alone, unless a manifest puts something in front of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.security.forbidden_code import ROOT, files

# What listens, and the option that says where.
SERVERS = {
    r"\bdagster\s+dev\b": r"(-h|--host)[ =]127\.0\.0\.1\b",
    r"\bdagster-webserver\b": r"(-h|--host)[ =]127\.0\.0\.1\b",
    r"\bmlflow\s+(server|ui)\b": r"--host[ =]127\.0\.0\.1\b",
    r"\bray\s+start\b.*--head": r"--dashboard-host[ =]127\.0\.0\.1\b",
    r"\b(uvicorn|gunicorn|http\.server|api_server|vllm\s+serve|prometheus|grafana)\b": r"127\.0\.0\.1",
}
EVERYWHERE = ("0.0.0.0", "::", "[::]")


def recipes(makefile: str) -> list[str]:
    """The command lines of a Makefile, continued lines as one."""
    joined = re.sub(r"\\\n\s*", "", makefile)
    return [line.strip() for line in joined.splitlines() if line.startswith("\t")]


def open_servers(makefile: str) -> list[str]:
    """Command lines that start a server without naming the loopback address."""
    return [
        line
        for line in recipes(makefile)
        for starts, bound in SERVERS.items()
        if re.search(starts, line) and not re.search(bound, line)
    ]


def open_addresses(paths: list[Path]) -> list[str]:
    """`file:line` of every address of all interfaces that stands in code."""
    return [
        f"{path.name}:{node.lineno}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in EVERYWHERE
    ]


def test_servers_of_the_makefile_listen_on_loopback() -> None:
    makefile = (ROOT / "Makefile").read_text()
    started = [line for line in recipes(makefile) if any(re.search(name, line) for name in SERVERS)]
    assert len(started) >= 2  # Dagster and MLflow
    assert open_servers(makefile) == []


@pytest.mark.parametrize(
    "line",
    [
        "dagster dev -m pipelines.definitions",
        "$(BIN)/dagster dev -h 0.0.0.0 -p 3000",
        "$(BIN)/mlflow server --port 5000 \\\n\t  --backend-store-uri sqlite:///runs/mlflow.db",
        "ray start --head --dashboard-host=0.0.0.0",
        "$(BIN)/python -m http.server 8000",
    ],
)
def test_an_open_server_would_be_found(line: str) -> None:
    assert len(open_servers(f"target: install\n\t{line}\n")) == 1


def test_no_code_listens_on_all_interfaces() -> None:
    assert open_addresses(files(ROOT)) == []


def test_an_address_of_all_interfaces_would_be_found(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text('server.bind(("0.0.0.0", 8000))')
    assert open_addresses([planted]) == ["planted.py:1"]
