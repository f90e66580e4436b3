"""An S3-compatible server of its own process, for tests: moto, with failures on demand.

`python -m tests.object_server` prints its address and serves until its standard input ends. A process of its
own, because libraries that hold the interpreter while they wait would wait for ever for a server in a thread.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

FAIL = "/_fail"
ERRORS = {403: ("403 Forbidden", "AccessDenied"), 500: ("500 Internal Server Error", "InternalError")}
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Faulty:
    """The server; a PUT of {"status": 403, "count": 3, "method": ["PUT"]} to /_fail spoils that many."""

    def __init__(self, app: Wsgi) -> None:
        self._app = app
        # Requests one by one: moto checks a condition and writes in two steps.
        self._lock = threading.Lock()
        self._due: dict[str, Any] = {"count": 0}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            if environ["PATH_INFO"] == FAIL:
                length = int(environ.get("CONTENT_LENGTH") or 0)
                self._due = json.loads(environ["wsgi.input"].read(length))
                start_response("200 OK", [("Content-Length", "0")])
                return [b""]
            if self._due["count"] and environ["REQUEST_METHOD"] in self._due["method"]:
                self._due["count"] -= 1
                status, code = ERRORS[self._due["status"]]
                body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
                start_response(
                    status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
                )
                return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]
            return list(self._app(environ, start_response))


class Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        return None


def main() -> None:
    app = Faulty(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
