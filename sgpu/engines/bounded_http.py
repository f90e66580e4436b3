"""Requests at a bounded rate, and replies that are neither too large, nor packed, nor slow for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx2
import openai


class RateLimit:
    """Evenly spaced turns for any number of threads; never more than ``per_minute`` starts in a minute."""

    def __init__(self, per_minute: int) -> None:
        if per_minute < 1:
            raise ValueError(f"requests_per_minute is {per_minute}; it must be at least 1")
        self._interval = 60.0 / per_minute
        self._lock = threading.Lock()
        self._next = float("-inf")

    def wait(self) -> None:
        """Block until this thread's turn."""
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + self._interval
        if turn > now:
            time.sleep(turn - now)


_STARTED = "sgpu_started"
# What the client has to send, so that a reply is as large as it is on its way.
UNPACKED = {"Accept-Encoding": "identity"}


class TooLargeError(openai.OpenAIError):
    """OpenAI's client passes it on without another try."""


def bound_replies(client: httpx2.Client, max_bytes: int, timeout_s: float, limit: RateLimit | None) -> None:
    """Hooks of an HTTP client: each try waits for its turn in ``limit`` and gets ``timeout_s`` for its reply.

    Redirects are not followed: they would take question and key to an address that nobody has named.
    """

    def before(request: httpx2.Request) -> None:
        if limit:
            limit.wait()
        request.extensions[_STARTED] = time.monotonic()

    def after(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise TooLargeError("packed, which was not asked for")
        assert isinstance(response.stream, httpx2.SyncByteStream)
        end = response.request.extensions[_STARTED] + timeout_s
        response.stream = _Bounded(response.stream, response.request, end, max_bytes)

    client.follow_redirects = False
    client.event_hooks = {"request": [before], "response": [after]}


class _Bounded(httpx2.SyncByteStream):
    def __init__(
        self, stream: httpx2.SyncByteStream, request: httpx2.Request, end: float, max_bytes: int
    ) -> None:
        self._stream, self._request, self._end, self._max_bytes = stream, request, end, max_bytes

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._stream:
            size += len(part)
            if size > self._max_bytes:
                raise TooLargeError(f"larger than {self._max_bytes} bytes")
            if time.monotonic() > self._end:
                raise httpx2.ReadTimeout("the reply took too long", request=self._request)
            yield part

    def close(self) -> None:
        self._stream.close()
