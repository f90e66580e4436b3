"""Requests as OpenTelemetry GenAI spans (a line of OTLP/JSON) and as MLflow 3 traces."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from bench.constructed_logs.chat_formats import SAMPLING, messages, openai, utc
from bench.constructed_logs.faults import Choice
from bench.constructed_logs.traffic import Request

Written = tuple[dict[str, Any], int, tuple[str | int, ...]]
_OTEL_ENDS = {"tool_calls": "tool_call"}
_SECOND = 1_000_000_000  # nanoseconds


def otel_id(request: Request) -> str:
    """The id under which a span is scored."""
    trace, span = _ids(request)
    return f"{trace.hex()}:{span.hex()}"


def mlflow_id(request: Request) -> str:
    """The id under which the request of a trace is scored."""
    trace, span = _ids(request)
    return f"tr-{trace.hex()}:{base64.b64encode(span).decode()}"


def otel(request: Request, given: Sequence[Choice], *, failed: bool) -> Written:
    """A line of spans, how many of them are no requests to a model, and the path of a needed field."""
    trace, span = _ids(request)
    attributes = _attributes(request, given, failed)
    chat = _span(trace, span, f"chat {request.model}", request.micros, attributes, failed)
    others = [
        _span(trace, span[:7] + bytes([n]), name, request.micros, {"http.request.method": "POST"}, False)
        for n, name in enumerate(("POST /v1/chat", "authorise", "look up")[: request.number % 4])
    ]
    resource = {"service.name": request.route} if request.route else {}
    scope = {"name": "bench", "version": "1"}
    spans = [{"scope": scope, "spans": [chat, *others]}]
    line = {"resourceSpans": [{"resource": {"attributes": _pairs(resource)}, "scopeSpans": spans}]}
    model = list(attributes).index("gen_ai.response.model")
    return line, len(others), ("resourceSpans", 0, "scopeSpans", 0, "spans", 0, "attributes", model)


def mlflow(request: Request, given: Sequence[Choice], *, failed: bool) -> Written:
    """A trace of an agent that asks a model; as `otel`. Spans that are no requests are no rows here."""
    trace, span = _ids(request)
    root = span[::-1]
    inputs = {"model": request.model, "n": len(given) if len(given) > 1 else 1, **SAMPLING}
    outputs = {} if failed else {"mlflow.spanOutputs": json.dumps(openai(request, given))}
    asks = {
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.spanInputs": json.dumps({**inputs, "messages": messages(request)}),
        **outputs,
    }
    trace_id = f"tr-{trace.hex()}"
    tags = {"mlflow.traceName": "answer"} | ({"route": request.route} if request.route else {})
    info: dict[str, Any] = {
        "trace_id": trace_id,
        "request_time": utc(request.micros),
        "state": "ERROR" if failed else "OK",
        "trace_metadata": {"mlflow.trace_schema.version": "3"},
        "tags": tags,
        "execution_duration_ms": 840,
    }
    if request.label is not None and not failed:
        info["assessments"] = [_assessment(request)]
    spans = [
        _trace_span(trace, root, None, request.micros, {"mlflow.spanType": '"AGENT"'}, failed),
        _trace_span(trace, span, root, request.micros, asks, failed),
    ]
    return {"info": info, "data": {"spans": spans}}, 0, ("data", "spans")


def _attributes(request: Request, given: Sequence[Choice], failed: bool) -> dict[str, Any]:
    prompt = [{"role": one["role"], "parts": _text_parts(one["content"])} for one in messages(request)]
    output = [
        {
            "role": "assistant",
            "parts": _otel_parts(choice),
            "finish_reason": _OTEL_ENDS.get(choice.finish, choice.finish),
        }
        for choice in given
    ]
    # Exporters differ: most write messages as a JSON string, some as structured attributes.
    shape = _typed if request.number % 3 == 0 else json.dumps
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.response.model": request.model,
        "gen_ai.response.id": f"chatcmpl-{request.request_id}",
        "gen_ai.request.temperature": 1.0,
        "gen_ai.input.messages": shape(prompt),
    }
    if len(given) > 1:
        attributes["gen_ai.request.choice.count"] = len(given)
    content = {"error.type": "timeout"} if failed else {"gen_ai.output.messages": shape(output)}
    return attributes | content


def _otel_parts(choice: Choice) -> list[dict[str, Any]]:
    if choice.finish == "tool_calls":
        return [{"type": "tool_call", "id": "call_1", "name": "look_up", "arguments": {}}]
    return [] if choice.text is None else _text_parts(choice.text)


def _text_parts(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "content": text}]


def _span(
    trace: bytes, span: bytes, name: str, micros: int, attributes: dict[str, Any], failed: bool
) -> dict[str, Any]:
    start = micros * 1_000
    return {
        "traceId": trace.hex(),
        "spanId": span.hex(),
        "name": name,
        "kind": 3,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + _SECOND),
        "attributes": _pairs(attributes),
        "status": {"code": 2} if failed else {},
    }


def _pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _typed(value)} for key, value in attributes.items()]


def _typed(value: Any) -> Any:
    """An AnyValue of the protocol; one that is typed already stays as it is."""
    if isinstance(value, dict) and set(value) <= {"arrayValue", "kvlistValue"} and value:
        return value
    if isinstance(value, list):
        return {"arrayValue": {"values": [_typed(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _pairs(value)}}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"doubleValue": value} if isinstance(value, float) else {"intValue": str(value)}


def _trace_span(
    trace: bytes, span: bytes, parent: bytes | None, micros: int, attributes: dict[str, Any], failed: bool
) -> dict[str, Any]:
    start = micros * 1_000
    return {
        "trace_id": base64.b64encode(trace).decode(),
        "span_id": base64.b64encode(span).decode(),
        "parent_span_id": None if parent is None else base64.b64encode(parent).decode(),
        "name": "answer" if parent is None else "Completions",
        "start_time_unix_nano": start,
        "end_time_unix_nano": start + _SECOND,
        "events": [],
        "status": {"code": "STATUS_CODE_ERROR" if failed else "STATUS_CODE_OK", "message": ""},
        "attributes": attributes,
        "links": [],
    }


def _assessment(request: Request) -> dict[str, Any]:
    return {
        "assessment_name": "correct",
        "source": {"source_type": "HUMAN", "source_id": "reviewer"},
        "feedback": {"value": bool(request.label)},
        "create_time": utc(request.micros),
        "valid": True,
    }


def _ids(request: Request) -> tuple[bytes, bytes]:
    """Trace (16 bytes) and span (8 bytes), which belong to the request alone."""
    digest = hashlib.sha256(request.request_id.encode()).digest()
    return digest[:16], digest[16:24]
