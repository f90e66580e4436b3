"""The columns that rows of any log format have: of a Parquet file no others are read.

A new adapter adds its own; `tests/logs/formats/test_columns.py` holds the set against all fixtures.
"""

from __future__ import annotations

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
