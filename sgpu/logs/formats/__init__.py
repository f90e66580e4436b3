"""The log formats that are read: one adapter a file, and the rule by which `auto` tells them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

from sgpu.errors import UsageError
from sgpu.logs.formats.anthropic import AnthropicMessages
from sgpu.logs.formats.columns import COLUMNS
from sgpu.logs.formats.gemini import GeminiResponses
from sgpu.logs.formats.mapped import OWN_MAPS, FieldMap, MappedRows
from sgpu.logs.formats.mlflow import MlflowTraces
from sgpu.logs.formats.openai import OpenAIResponses
from sgpu.logs.formats.openai_batch import OpenAIBatch
from sgpu.logs.formats.otel import OtelSpans
from sgpu.logs.formats.sgpu import ResponseSets
from sgpu.logs.formats.single import SingleAnswers
from sgpu.logs.formats.wrapped import Wrapped
from sgpu.logs.records import Item, Reason
from sgpu.logs.rows.envelopes import seen
from sgpu.logs.rows.fields import rejected
from sgpu.registry import unknown_name


class Adapter(Protocol):
    """Reads the rows of one format. Neither method raises, whatever the row holds."""

    name: str

    def recognises(self, record: dict[str, Any]) -> bool:
        """Whether the row may be of this format. Of several adapters that say so, the first of ADAPTERS."""
        ...

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        """What the row holds: one item at least."""
        ...


AUTO, MAPPED = "auto", "map"
# In the order in which `auto` asks them. Applications add to rows what another format is told by (the ids of
# trace and span, a request id with a time): the marks that nobody adds go first, telemetry's ids last.
ADAPTERS: dict[str, Adapter] = {
    one.name: one
    for one in (
        OpenAIBatch(),
        OpenAIResponses(),
        AnthropicMessages(),
        GeminiResponses(),
        Wrapped(),
        *OWN_MAPS,
        ResponseSets(),
        SingleAnswers(),
        MlflowTraces(),
        OtelSpans(),
    )
}


class FormatReader:
    """Hands each row to the adapter of its format, and counts which were taken.

    With `auto` every row is looked at on its own, whatever came before it, so that files of several formats
    may lie in one folder, and lines of several in one file; otherwise all rows must be of the format that was
    named. ``map`` is for rows that are of no format.
    ``columns``: all that is read of a Parquet file. UsageError for a name that is not known.
    """

    def __init__(self, name: str = AUTO, map: FieldMap | None = None) -> None:
        if name != AUTO and name not in ADAPTERS:
            raise UsageError(unknown_name("log format", name, sorted([AUTO, *ADAPTERS])))
        self._named = ADAPTERS.get(name)
        self._mapped = None if map is None else MappedRows(MAPPED, map)
        self.columns = COLUMNS if map is None else COLUMNS | map.columns
        self.taken: Counter[str] = Counter()

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        """The items of a row; UNKNOWN_FORMAT where no adapter takes it."""
        adapter = self._named or recogniser(record) or self._mapped
        if adapter is None:
            yield rejected(
                Reason.UNKNOWN_FORMAT,
                f"{seen(record)}. A map of its fields (--map FILE) would have it read",
                request_id=record.get("request_id"),
                timestamp=record.get("timestamp"),
            )
            return
        self.taken[adapter.name] += 1
        yield from adapter.items(record)


def recogniser(record: dict[str, Any]) -> Adapter | None:
    """The adapter that takes a row.

    It depends on nothing but the row. Asking in turn costs 1 microsecond a row; reading a row takes 20.
    """
    for adapter in ADAPTERS.values():
        if adapter.recognises(record):
            return adapter
    return None
