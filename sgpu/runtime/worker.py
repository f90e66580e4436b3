"""Workers of stages: objects whose fields are their settings, sent to the actors and opened there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from sgpu.registry import Registry

T = TypeVar("T")
_holder: ContextVar[dict[str, Any] | None] = ContextVar("holder", default=None)
_OUTSIDE, _REGISTRY = "outside content", "registry"


class StageWorker:
    """A stage's work: a function on a pyarrow table, and a dataclass of all that decides what comes out.

    Each field is part of the fingerprint of the table that the worker makes, except those with the metadata
    `NOT_CONTENT`. Subclasses define ``__call__``; ``ends_stage`` are kinds of errors that say nothing of a
    row, and stop the stage.
    """

    ends_stage: ClassVar[tuple[type[Exception], ...]] = ()

    def open(self) -> None:
        """Open what the work needs, once, in the process that does it."""

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Return one output row for every input row, in the stage's schema."""
        raise NotImplementedError

    def counts(self, output: pa.Table) -> Mapping[str, float]:
        """Return what to add up for progress and summary, for instance tokens."""
        return {}


@runtime_checkable
class DivisibleWorker(Protocol):
    """A worker whose rows consist of pieces; of a row that fails or kills its worker, each is tried alone."""

    def split(self, row: pa.Table) -> pa.Table:
        """Return the pieces of one row, as rows of the same columns with ids of their own."""
        ...

    def gather(self, row_id: str, pieces: pa.Table) -> pa.Table:
        """Return the output row of a row that was split, from those of its pieces, failed ones included."""
        ...


NOT_CONTENT = {_OUTSIDE: True}  # metadata of a field that changes nothing of what comes out: a path, a device


def name_in(registry: Registry) -> dict[str, Any]:
    """Return the metadata of a field with a registered name: the plug-in that brings it is content too."""
    return {_REGISTRY: registry}


def content_of(value: Any) -> Any:
    """Return what of a dataclass decides the content of a table, as JSON values; other values as they are."""
    if not is_dataclass(value):
        return value
    if made := getattr(value, "content", None):
        return made()
    content: dict[str, Any] = {}
    for one in fields(value):
        if _OUTSIDE not in one.metadata:
            content[one.name] = content_of(getattr(value, one.name))
        if registry := one.metadata.get(_REGISTRY):
            content |= registry.plugins(content[one.name])
    return content


class Held:
    """What actors open once for all their workers: an engine, an encoder. Subclasses are frozen dataclasses.

    Stages whose workers hold the same can share actors.
    """


def held_in(worker: StageWorker) -> list[str]:
    """Return what the actors of a worker hold; equal if they hold the same."""
    return [repr(value) for value in vars(worker).values() if isinstance(value, Held)]


@contextmanager
def held_by(holder: dict[str, Any]) -> Iterator[None]:
    """Keep in ``holder`` what workers that are opened inside `hold`, and open nothing of it twice."""
    token = _holder.set(holder)
    try:
        yield
    finally:
        _holder.reset(token)


def hold(key: object, open_it: Callable[[], T]) -> T:
    """Return what ``open_it`` opens: an engine, an encoder, a model.

    All workers of an actor get the same for a ``key`` with the same ``repr``; outside of an actor nothing is
    kept.
    """
    if (holder := _holder.get()) is None:
        return open_it()
    name = repr(key)
    if name not in holder:
        holder[name] = open_it()
    held: T = holder[name]
    return held
