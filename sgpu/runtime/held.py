"""What the workers of one actor hold once for all of them: an engine, an encoder, a model.

A worker opens such a thing with `hold`; the actor that builds the workers says with `held_by` where it is
kept. Outside of an actor nothing is kept, and each `hold` opens a thing of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from sgpu.hashing import canonical_json

T = TypeVar("T")
_holder: ContextVar[dict[str, Any] | None] = ContextVar("holder", default=None)


@contextmanager
def held_by(holder: dict[str, Any]) -> Iterator[None]:
    """Keep in ``holder`` what is opened inside, and open nothing of it twice."""
    token = _holder.set(holder)
    try:
        yield
    finally:
        _holder.reset(token)


def hold(key: object, open_it: Callable[[], T]) -> T:
    """Return what ``open_it`` opens; the same for all workers of an actor with an equal ``key`` (as JSON)."""
    if (holder := _holder.get()) is None:
        return open_it()
    name = canonical_json(key)
    if name not in holder:
        holder[name] = open_it()
    held: T = holder[name]
    return held
