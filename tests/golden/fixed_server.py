"""A chat server at a fixed loopback address: what a night asked is known by the address too."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

WAIT_SECONDS = 120  # for another check on this machine


class FixedServer:
    """Answers every question with ``n`` texts made of the question; ``questions`` are those that came.

    ``before_answer`` is called with the number of the request, from 1, before it is answered.
    """

    def __init__(self, address: tuple[str, int], before_answer: Callable[[int], object]) -> None:
        self.questions: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.questions.append(asked["messages"][-1]["content"])
                before_answer(len(outer.questions))
                payload = json.dumps(_completion(asked)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: object) -> None:
                return None

        self._server = _bound(address, Handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _bound(address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            server = ThreadingHTTPServer(address, handler)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(1)
        else:
            server.daemon_threads = True
            return server


def _completion(asked: dict[str, Any]) -> dict[str, Any]:
    """Two of the answers are the same."""
    words = asked["messages"][-1]["content"].split()
    texts = [words[min(number, len(words) - 1)] for number in (0, 0, 3, 4, *range(asked["n"]))][: asked["n"]]
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [
            {"index": place, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for place, text in enumerate(texts)
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14},
    }
