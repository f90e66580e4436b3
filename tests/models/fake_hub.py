"""A hub of this machine: the few addresses that huggingface_hub asks, answered from a folder.

``root/models/OWNER/NAME`` and ``root/datasets/OWNER/NAME`` are repositories, the same at every commit.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MAIN = "0123456789abcdef0123456789abcdef01234567"
_API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree)/([^/?]+))?")
_FILE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class FakeHub(ThreadingHTTPServer):
    """``gated`` repositories give no file. Each name in ``damaged`` spoils one answer; ``sent`` are files."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root, self.gated, self.damaged = root, set[str](), list[str]()
        self.sent: list[str] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if api := _API.match(self.path):
            folder = self.server.root / api[1] / api[2]
            info = {"id": api[2], "sha": commit_of(api[4]), "siblings": []}
            content = list_files(folder) if api[3] == "tree" else info
            there = folder.is_dir()
            body = json.dumps(content if there else {}).encode()
            self._answer(body, {}, "" if there else "RepoNotFound")
            return
        if (file := _FILE.match(self.path)) is None:
            self._answer(b"", {}, "NotFound")
            return
        path = self.server.root / ("datasets" if file[1] else "models") / file[2] / file[4]
        content = path.read_bytes() if path.is_file() else b""
        headers = {"X-Repo-Commit": commit_of(file[3]), "ETag": f'"{content_hash(path.name, content)}"'}
        if self.command == "GET":
            self.server.sent.append(path.name)
            if path.name in self.server.damaged:
                self.server.damaged.remove(path.name)
                content = b"\0" * len(content)
        gated = "GatedRepo" if file[2] in self.server.gated else ""
        self._answer(content, headers, gated or ("" if path.is_file() else "EntryNotFound"))

    def _answer(self, body: bytes, headers: dict[str, str], error: str) -> None:
        self.send_response((403 if error == "GatedRepo" else 404) if error else 200)
        for name, value in {**headers, "Content-Length": str(len(body)), "X-Error-Code": error}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def commit_of(revision: str | None) -> str:
    return revision if revision and re.fullmatch("[0-9a-f]{40}", revision) else MAIN


def list_files(folder: Path) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content, name = path.read_bytes(), path.relative_to(folder).as_posix()
        hashed = content_hash(name, content)
        lfs = {"lfs": {"oid": hashed, "size": len(content), "pointerSize": 9}} if len(hashed) == 64 else {}
        entries.append({"type": "file", "path": name, "size": len(content), "oid": hashed, **lfs})
    return entries


def content_hash(name: str, content: bytes) -> str:
    """The sha256 of a file that a hub keeps beside git, git's hash of any other."""
    if name.endswith((".safetensors", ".parquet", ".bin")):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serve(root: Path) -> Iterator[FakeHub]:
    with FakeHub(root) as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
