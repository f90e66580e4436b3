"""A call to a model as other tools log it: a request and a response, each somewhere in a larger record.

LiteLLM's logging payload, Bedrock's invocation log, observations of Langfuse, runs of LangSmith, gateways and
pairs that applications write. The tables below say where; a response is known by its own shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sgpu.logs.rows.fields import show_value, structured

KINDS = ("chat.completion", "text_completion", "response")
# Where the parts of a call are, the first that is there; a dot goes one level down.
RESPONSES = (
    "response", "response_body", "responseBody", "response.body", "body", "output.outputBodyJson", "output",
    "outputs", "result", "completion",
)  # fmt: skip
REQUESTS = (
    "request", "request_body", "requestBody", "request.body", "input.inputBodyJson", "inputs", "input",
)  # fmt: skip
SETTINGS = ("modelParameters", "model_parameters", "extra.invocation_params")
IDS = ("id", "request_id", "requestId", "responseId", "response_id")
TIMES = ("timestamp", "startTime", "start_time", "request_created_at", "created_at", "time", "created",
         "createTime", "create_time")  # fmt: skip
MODELS = ("model", "modelId", "modelVersion", "model_version", "extra.metadata.ls_model_name")
ROUTES = ("route", "metadata.route")
_DEEPEST, _MOST = 4, 200


@dataclass(frozen=True, slots=True)
class Envelope:
    """``response``: None where the call has none. ``is_call``: False for what asks no model."""

    request: Any
    response: Any
    is_call: bool = True
    failed: bool = False


def envelope_of(record: Mapping[str, Any]) -> Envelope | None:
    """The call in a record; None where the record is of no known kind."""
    values = (structured(at(record, path)) for path in RESPONSES)
    response = next((value for value in values if kind_of_response(value)), None)
    marked = _marked(record)
    if response is None and marked is None:
        return None
    if response is None:
        response = structured(next((record[key] for key in ("output", "outputs") if record.get(key)), None))
    failed = record.get("status") in ("failure", "error") or bool(
        record.get("error") or record.get("errorCode")
    )
    requests = [structured(at(record, path)) for path in REQUESTS]
    request = next(filter(_asks, requests), None)
    if "messages" in record:
        request = {**(request if isinstance(request, Mapping) else {}), "messages": record["messages"]}
    return Envelope(request, response, marked is not False, failed or record.get("level") == "ERROR")


def _asks(value: Any) -> bool:
    """Whether this is a question, or a body that holds one."""
    if isinstance(value, Mapping):
        return any(value.get(key) for key in ("messages", "prompt", "input", "contents"))
    return isinstance(value, str | list) and bool(value)


def _marked(record: Mapping[str, Any]) -> bool | None:
    """Whether a record of a tool is a call to a model; None for a record of no tool that is known."""
    if "litellm_call_id" in record or record.get("schemaType") == "ModelInvocationLog":
        return record.get("call_type") not in ("embedding", "aembedding", "image_generation", "moderation")
    if "run_type" in record and "inputs" in record:
        return record["run_type"] in ("llm", "chat_model")
    if (
        isinstance(record.get("type"), str)
        and ("traceId" in record or "trace_id" in record)
        and ("startTime" in record or "start_time" in record)
    ):
        return record["type"] == "GENERATION"
    return None


def kind_of_response(value: Any) -> str | None:
    """What a provider's response is called; None for anything else."""
    if not isinstance(value, Mapping):
        return None
    kind = value.get("object")
    if isinstance(kind, str) and kind in KINDS:
        return kind
    if isinstance(value.get("choices"), list):
        return "chat.completion"
    if value.get("type") == "message" and isinstance(value.get("content"), list):
        return "message of Anthropic"
    if isinstance(value.get("candidates"), list):
        return "response of Gemini"
    if isinstance(value.get("generations"), list):
        return "result of LangChain"
    output = value.get("output")
    if isinstance(output, Mapping) and isinstance(output.get("message"), Mapping):
        return "response of Converse"
    return None


def at(record: Any, path: str) -> Any:
    """The value at a path of keys and places of a list, with dots between; None where there is none."""
    for step in path.split("."):
        record = structured(record)
        if isinstance(record, Mapping):
            record = record.get(step)
        elif isinstance(record, list) and step.isascii() and step.isdigit() and len(step) < 5:
            record = record[int(step)] if int(step) < len(record) else None
        else:
            return None
    return record


def first_at(record: Mapping[str, Any], paths: tuple[str, ...]) -> Any:
    """The first value that is there and not empty."""
    return next((value for path in paths if (value := at(record, path)) not in (None, "")), None)


def description_of(record: Mapping[str, Any]) -> str:
    """What a record of no known format is, for a message: its keys, and a known response somewhere inside."""
    keys = ", ".join(show_value(key)[:24] for key in list(record)[:5]) + (", ..." if len(record) > 5 else "")
    description = f"an object of {len(record)} keys ({keys}) that is of no known format"
    path, kind = next(_responses(record), (None, None))
    return description if path is None else f"{description}; it holds a {kind} under {show_value(path)[:60]}"


def _responses(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    waiting: list[tuple[Any, str]] = [(record, "")]
    looked_at = 0
    while waiting and looked_at < _MOST:
        node, path = waiting.pop(0)
        looked_at += 1
        kind = kind_of_response(node)
        if kind and path:
            yield path, kind
        inner = node.items() if isinstance(node, Mapping) else enumerate(node[:3])
        for key, value in inner if path.count(".") < _DEEPEST else ():
            value = structured(value)
            if isinstance(value, Mapping | list) and len(waiting) < _MOST:
                waiting.append((value, f"{path}.{key}" if path else str(key)))
