"""Object storage for tests: a server in its own process, and an environment that reaches only that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SECRET = "wJalrXUtnFEMI-for-tests-only"


@dataclass(frozen=True)
class ObjectStore:
    """A running server with one bucket for the test."""

    url: str
    bucket: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "for-tests",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def uri(self, prefix: str) -> str:
        return f"s3://{self.bucket}/{prefix}"

    def fail(self, status: int, count: int, methods: Sequence[str] = ("GET", "HEAD", "PUT", "POST")) -> None:
        """Answer the next ``count`` requests of these methods with an error."""
        self.put("/_fail", json.dumps({"status": status, "count": count, "method": list(methods)}).encode())

    def put(self, path: str, data: bytes = b"") -> None:
        urllib.request.urlopen(urllib.request.Request(self.url + path, data, method="PUT")).close()


@pytest.fixture(scope="session")
def object_server() -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.object_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    yield server.stdout.readline().strip()
    server.stdin.close()
    server.wait(timeout=30)


@pytest.fixture
def object_store(object_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    store = ObjectStore(object_server, f"test-{uuid.uuid4().hex[:12]}")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    store.put(f"/{store.bucket}")
    yield store
    store.fail(500, 0)
