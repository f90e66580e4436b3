"""An HTTP proxy that spoils requests on their way to a server, as a bad day of object storage does.

`python -m tests.chaos.faulty_proxy BACKEND FAULT SHARE SEED` prints its address and serves until its standard
input ends; GET /_count tells how many requests it has spoiled. FAULT is one of

- refuse: the server never sees the request, the client gets a 500;
- deny: the server does what it is asked, and the client is told 500 all the same;
- cut: the connection breaks in the middle of the answer;
- slow: the answer comes late.
"""

from __future__ import annotations

import http.client
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlparse

FAULTS = ("refuse", "deny", "cut", "slow")
SLOW_S = (0.3, 1.5)
COUNT = "/_count"
ERROR = b"<Error><Code>InternalError</Code><Message>InternalError</Message></Error>"
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


class Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, backend: str, fault: str, share: float, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.backend = urlparse(backend).netloc
        self.fault, self.share = fault, share
        self.spoiled = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def due(self) -> bool:
        """Whether this request is to be spoiled."""
        with self._lock:
            due = self._random.random() < self.share
            self.spoiled += due
            return due

    def delay(self) -> float:
        with self._lock:
            return self._random.uniform(*SLOW_S)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _handle(self) -> None:
        body = self._body()
        if self.path == COUNT:
            return self._answer(200, [], str(self.server.spoiled).encode())
        fault = self.server.fault if self.server.due() else None
        if fault == "refuse":
            return self._answer(500, [("Content-Type", "application/xml")], ERROR)
        status, headers, content = self._forwarded(body)
        if fault == "slow":
            time.sleep(self.server.delay())
        if fault == "deny":
            return self._answer(500, [("Content-Type", "application/xml")], ERROR)
        if fault == "cut":
            self.close_connection = True
            return self._answer(status, headers, content, told=len(content) + 100)
        return self._answer(status, headers, content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers
            pass
        return b"".join(parts)

    def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.server.backend, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect", "transfer-encoding", "content-length"):
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            reply = connection.getresponse()
            content = reply.read()
            headers = [(k, v) for k, v in reply.getheaders() if k.lower() not in HOP_BY_HOP]
            if self.command == "HEAD" and (length := reply.getheader("Content-Length")):
                headers.append(("Content-Length", length))
            return reply.status, headers, content
        finally:
            connection.close()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, told: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if "content-length" not in {name.lower() for name, _ in headers}:
            self.send_header("Content-Length", str(len(content) if told is None else told))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        return None


def main(backend: str, fault: str, share: str, seed: str) -> None:
    assert fault in FAULTS
    proxy = Proxy(backend, fault, float(share), int(seed))
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{proxy.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
