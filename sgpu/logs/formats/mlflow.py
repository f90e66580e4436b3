"""MLflow 3 traces, as `Trace.to_json` writes them and as rows of `mlflow.search_traces` (Parquet).

Source: mlflow.entities.Trace.to_dict. A trace is a tree of spans; those of type CHAT_MODEL or LLM are
requests, their outputs the provider's response as the library logged it. Where such a span lies within
another (two integrations that both log one call) the inner one counts: it holds the response itself.

The request id is <trace id>:<span id>, also where the trace has one request: how many it has is not known
while it grows. Labels are the trace's feedback named correct, correctness or label; a person's goes first.
A list of texts is a set of answers only where `n` of the inputs is its length: a function that gives one
answer in pieces logs a list too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sgpu.logs.records import Item, NoAnswer, Reason
from sgpu.logs.rows.assembly import Request, assemble
from sgpu.logs.rows.clock import micros_of
from sgpu.logs.rows.fault import RowFault
from sgpu.logs.rows.fields import checked, count_of, mapping_of, needed_text, rejected, text_of, unfinished
from sgpu.logs.rows.mlflow_trace import Call, Trace, is_trace, trace_of
from sgpu.logs.rows.question import SAMPLING, Question, is_whole, question_of_body, several_questions
from sgpu.logs.rows.responses import answers_of


class MlflowTraces:
    """One item per request of a trace."""

    name = "mlflow"

    def recognises(self, record: dict[str, Any]) -> bool:
        return is_trace(record)

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        try:
            trace = trace_of(record)
        except RowFault as fault:
            yield rejected(fault.reason, fault.detail, request_id=record.get("trace_id"))
            return
        for call in trace.calls:
            known = {"request_id": _request_id(trace, call), "timestamp": _time(trace, call)}
            yield checked(
                partial(_item, trace, call), model=_model(call), route=trace.tags.get("route"), **known
            )
        if not trace.calls:
            yield unfinished() if trace.running else NoAnswer("trace_without_model_call")


def _item(trace: Trace, call: Call) -> Item:
    if call.outputs is None:
        if call.failed:
            raise RowFault(Reason.FAILED_REQUEST, "the span ended with an error and has no output")
        return unfinished() if trace.running else NoAnswer("span_without_content")
    inputs = mapping_of(call.inputs)
    # LangChain logs its prompts without a name.
    if several := several_questions(inputs or {"prompts": call.inputs}):
        raise RowFault(Reason.BAD_VALUE, several)
    asked = count_of(inputs.get("n"), "n of the inputs")
    request = Request(
        request_id=needed_text(_request_id(trace, call), "trace id"),
        timestamp=micros_of(_time(trace, call), "time of the span"),
        model=needed_text(_model(call), "model"),
        route=text_of(trace.tags.get("route"), "the tag route"),
        answers=answers_of(call.outputs, asked),
        question=_question(trace, call, inputs),
        asked=asked,
        # Feedback is of the whole trace: with several requests it is not known which it judges.
        label=trace.label if len(trace.calls) == 1 else None,
    )
    return assemble(request)


def _question(trace: Trace, call: Call, inputs: Mapping[str, Any]) -> Question:
    asked = question_of_body(inputs)
    if asked.content is None and call.inputs is not None:
        sampling = {key: inputs[key] for key in SAMPLING if key in inputs}
        content = {
            key: value for key, value in inputs.items() if key not in (*SAMPLING, "model", "seed", "n")
        }
        asked = Question(content or call.inputs, sampling, whole=is_whole(call.inputs))
    group_id = text_of(trace.tags.get("group_id"), "the tag group_id") or asked.group_id
    return replace(asked, group_id=group_id)


def _request_id(trace: Trace, call: Call) -> str | None:
    return f"{trace.trace_id}:{call.span_id}" if trace.trace_id and call.span_id else None


def _time(trace: Trace, call: Call) -> Any:
    return call.time if call.time is not None else trace.time


def _model(call: Call) -> Any:
    outputs, inputs = mapping_of(call.outputs), mapping_of(call.inputs)
    return outputs.get("model") or call.model or inputs.get("model")
