"""A chat server on the loopback address that refuses what hosted ones refuse."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY, MODEL = "sk-right", "vendor/answers-4.1:free"
DOCUMENTED = {"model", "messages", "temperature", "top_p", "max_tokens", "stop", "seed", "logprobs"}
CITIES = ["Paris", "Rome", "Madrid", "Oslo"]


class HostedServer:
    """``asked``: how often each question was answered. ``calls_left``: then it hangs up; None: it never does.

    The first call of every question finds it busy. It gives no log-probabilities and one answer a call.
    """

    def __init__(self, port: int = 0, calls_left: int | None = None, lists_models: bool = True) -> None:
        self.asked: Counter[str] = Counter()
        self.tokens = 0
        self.calls_left, self._lists = calls_left, lists_models
        self._busy: set[str] = set()
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                listed = server._lists and self.path == "/v1/models"
                self._send(
                    *server._checked(self.headers) or (200 if listed else 404, {"data": [{"id": MODEL}]})
                )

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if (reply := server._reply(self.headers, body)) is None:
                    self.close_connection = True
                    return
                self._send(*reply)

            def _send(self, status: int, content: Any) -> None:
                payload = json.dumps(content).encode()
                self.send_response(status)
                for name, value in {
                    "Content-Type": "application/json", "Content-Length": len(payload), "Retry-After": "0",
                }.items():  # fmt: skip
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: object) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> HostedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _checked(self, headers: Any) -> tuple[int, Any] | None:
        if headers["Authorization"] != f"Bearer {KEY}":
            return 401, _error("Incorrect API key provided")
        return None

    def _reply(self, headers: Any, body: dict[str, Any]) -> tuple[int, Any] | None:
        if refusal := self._checked(headers):
            return refusal
        if body["model"] != MODEL:
            return 404, _error("no such model")
        if unknown := set(body) - DOCUMENTED:
            return 400, _error(f"Unrecognized request arguments: {', '.join(sorted(unknown))}")
        question = body["messages"][-1]["content"]
        with self._lock:
            if question not in self._busy:
                self._busy.add(question)
                return 429, _error("busy")
            if self.calls_left is not None:
                if self.calls_left <= 0:
                    return None
                self.calls_left -= 1
            self.asked[question] += 1
            self.tokens += 12
        return 200, _completion(CITIES[body.get("seed", 0) * 7919 % 31 % len(CITIES)])


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}


def _completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "c", "object": "chat.completion", "created": 1, "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }  # fmt: skip
