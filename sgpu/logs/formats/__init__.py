"""The log formats that are read: one adapter a file, and the rule by which `auto` tells them apart.

A new adapter adds its columns to COLUMNS; `tests/logs/formats/test_formats.py` holds the set against all
fixtures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol

from sgpu.errors import UsageError
from sgpu.logs.formats.mapped import FieldMap, MappedRows
from sgpu.logs.records import Item, Reason
from sgpu.logs.rows.envelopes import description_of
from sgpu.logs.rows.fields import rejected
from sgpu.registry import Registry, unknown_name

COLUMNS = {
    # Our own rows, with one answer or several, and what `sgpu fit` takes.
    "schema_version", "request_id", "timestamp", "model", "route", "samples", "text", "finish_reason",
    "sampling", "metadata", "messages", "prompt", "images", "group_id", "label", "question_id",
    "question", "answers", "references",
    # OpenAI's responses, and lines of its batches.
    "id", "object", "created", "created_at", "choices", "output", "input", "status", "error",
    "incomplete_details", "conversation", "custom_id", "method", "url", "body", "response", "request",
    # Messages of other providers, gateways and engines.
    "type", "role", "content", "stop_reason", "candidates", "promptFeedback", "responseId",
    "modelVersion", "createTime", "requestId", "modelId", "operation", "startTime", "endTime",
    "outputs", "inputs", "run_type", "result", "generations",
    "params", "stop_sequence", "finished", "metrics", "create_time", "model_version", "response_id",
    # What other tools put around a response.
    "response_body", "responseBody", "request_body", "requestBody", "request_created_at", "time",
    "completion", "schemaType", "litellm_call_id", "call_type", "modelParameters", "model_parameters",
    "extra", "level", "errorCode",
    # MLflow's traces.
    "info", "data", "trace", "trace_id", "spans", "tags", "state", "request_time", "timestamp_ms",
    "assessments", "trace_metadata",
    # Telemetry: lines of OTLP, and single spans or log records of either spelling.
    "resourceSpans", "resourceLogs", "resourceMetrics", "resource", "attributes", "context", "name",
    "kind", "eventName", "event_name", "events", "traceId", "spanId", "parentSpanId", "span_id",
    "parent_span_id", "parent_id", "startTimeUnixNano", "start_time", "timeUnixNano",
    "observedTimeUnixNano", "observed_timestamp", "end_time", "endTimeUnixNano",
}  # fmt: skip


class Adapter(Protocol):
    """Reads the rows of one format. Neither method raises, whatever the row holds.

    An adapter that reads columns of Parquet files beside COLUMNS has them as a set ``columns``.
    """

    name: str

    def recognises(self, record: dict[str, Any]) -> bool:
        """Whether the row may be of this format. Of several that say so, the first of LOG_FORMATS."""
        ...

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        """What the row holds: one item at least."""
        ...


AUTO, MAPPED = "auto", "map"
# In the order in which `auto` asks them. Applications add to rows what another format is told by (the ids of
# trace and span, a request id with a time): the marks that nobody adds go first, telemetry's ids last.
# Plug-ins are asked after all of ours.
LOG_FORMATS = Registry(
    "log format",
    {
        "openai_batch": "sgpu.logs.formats.openai:OpenAIBatch",
        "openai": "sgpu.logs.formats.openai:OpenAIResponses",
        "anthropic": "sgpu.logs.formats.anthropic:AnthropicMessages",
        "gemini": "sgpu.logs.formats.wrapped:GeminiResponses",
        "wrapped": "sgpu.logs.formats.wrapped:Wrapped",
        "vllm": "sgpu.logs.formats.mapped:VLLM",
        "fit": "sgpu.logs.formats.mapped:FIT",
        "sgpu": "sgpu.logs.formats.sgpu:ResponseSets",
        "single": "sgpu.logs.formats.sgpu:SingleAnswers",
        "mlflow": "sgpu.logs.formats.mlflow:MlflowTraces",
        "otel": "sgpu.logs.formats.otel:OtelSpans",
    },
    group="sgpu.log_formats",
    reserved=(AUTO, MAPPED),
)


@cache
def adapters() -> dict[str, Adapter]:
    """The adapter of every format, in the order of LOG_FORMATS; an entry is one, or its class."""
    entries = {name: LOG_FORMATS.get(name) for name in LOG_FORMATS}
    return {name: entry() if isinstance(entry, type) else entry for name, entry in entries.items()}


class FormatReader:
    """Hands each row to the adapter of its format, and counts which were taken.

    With `auto` every row is looked at on its own, whatever came before it, so that files of several formats
    may lie in one folder, and lines of several in one file; otherwise all rows must be of the format that was
    named. ``map`` is for rows that are of no format.
    ``columns``: all that is read of a Parquet file. UsageError for a name that is not known.
    """

    def __init__(self, name: str = AUTO, map: FieldMap | None = None) -> None:
        if name != AUTO and name not in LOG_FORMATS:
            raise UsageError(unknown_name("log format", name, sorted([AUTO, *LOG_FORMATS])))
        self._named = adapters().get(name)
        self._mapped = None if map is None else MappedRows(MAPPED, map)
        self.columns = COLUMNS if map is None else COLUMNS | map.columns
        self.columns = self.columns.union(*(getattr(entry, "columns", ()) for entry in adapters().values()))
        self.taken: Counter[str] = Counter()

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        """The items of a row; UNKNOWN_FORMAT where no adapter takes it."""
        # It depends on nothing but the row. Asking in turn costs 1 microsecond a row; reading a row takes 20.
        recognising = (adapter for adapter in adapters().values() if adapter.recognises(record))
        adapter = self._named or next(recognising, self._mapped)
        if adapter is None:
            yield rejected(
                Reason.UNKNOWN_FORMAT,
                f"{description_of(record)}. A map of its fields (--map FILE) would have it read",
                request_id=record.get("request_id"),
                timestamp=record.get("timestamp"),
            )
            return
        self.taken[adapter.name] += 1
        yield from adapter.items(record)
