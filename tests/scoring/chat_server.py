"""A chat server on the loopback address that answers, or fails, as a test says."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


class Reply:
    """What goes over the wire: a status, headers, and parts of a body (a callable is called between them)."""

    def __init__(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.headers = headers or {}
        raw = content if isinstance(content, bytes | list) else json.dumps(content).encode()
        self.parts: list[bytes | Callable[[], object]] = raw if isinstance(raw, list) else [raw]


Answer = Callable[[Body, int], Reply]  # request body, how often this question came before


class ChatServer:
    """``seen``: the body of every request, with its headers (in small letters) under "headers"."""

    def __init__(self, answer: Answer) -> None:
        self.seen: list[Body] = []
        self._tries: Counter[str] = Counter()
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server._lock:
                    earlier = server._tries[json.dumps(body)]
                    server._tries[json.dumps(body)] += 1
                    server.seen.append(
                        {
                            **body,
                            "headers": {k.lower(): v for k, v in self.headers.items()},
                            "path": self.path,
                        }
                    )
                self._send(answer(body, earlier))

            def _send(self, reply: Reply) -> None:
                self.send_response(reply.status)
                size = sum(len(part) for part in reply.parts if isinstance(part, bytes))
                fields = {"Content-Type": "application/json", "Content-Length": str(size), **reply.headers}
                for name, value in fields.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    for part in reply.parts:
                        if isinstance(part, bytes):
                            self.wfile.write(part)
                            self.wfile.flush()
                        else:
                            part()
                except OSError:
                    self.close_connection = True  # the client has seen enough

            def log_message(self, *_: object) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def chat_server(answer: Answer) -> Iterator[ChatServer]:
    """A server for the length of a test."""
    server = ChatServer(answer)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def completion(texts: list[Any], usage: Body | None = None) -> Body:
    """A chat completion; an entry is the text of an answer, or a whole choice."""
    choices = [
        text
        if isinstance(text, dict)
        else {"index": place, "message": {"content": text}, "finish_reason": "stop"}
        for place, text in enumerate(texts)
    ]
    counted = {"prompt_tokens": 10, "completion_tokens": 2 * len(texts)} if usage is None else usage
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": choices,
        "usage": counted,
    }


def n_answers(body: Body, earlier: int = 0) -> Reply:
    """As many answers as are asked for, which name the question's seed."""
    return Reply(completion([f"answer {place} of {body['seed']}" for place in range(body["n"])]))
