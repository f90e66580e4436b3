"""Replies of a server that may be neither too large, nor packed, nor come drop by drop for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx2
import openai

from sgpu.engines.rate import RateLimit

_STARTED = "sgpu_started"
# What the client has to send, so that a reply is as large as it is on its way.
UNPACKED = {"Accept-Encoding": "identity"}


class TooLargeError(openai.OpenAIError):
    """OpenAI's client passes it on without another try."""


class Bounds:
    """Hooks of an HTTP client: each try waits for its turn in ``limit`` and gets ``timeout_s`` for its reply.

    Redirects are not followed: they would take question and key to an address that nobody has named.
    """

    def __init__(self, max_bytes: int, timeout_s: float, limit: RateLimit | None) -> None:
        self._max_bytes, self._timeout_s, self._limit = max_bytes, timeout_s, limit

    def keep(self, client: httpx2.Client) -> None:
        client.follow_redirects = False
        client.event_hooks = {"request": [self._before], "response": [self._after]}

    def _before(self, request: httpx2.Request) -> None:
        if self._limit:
            self._limit.wait()
        request.extensions[_STARTED] = time.monotonic()

    def _after(self, response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise TooLargeError("packed, which was not asked for")
        assert isinstance(response.stream, httpx2.SyncByteStream)
        end = response.request.extensions[_STARTED] + self._timeout_s
        response.stream = _Bounded(response.stream, response.request, end, self._max_bytes)


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
