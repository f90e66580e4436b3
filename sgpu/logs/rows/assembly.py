"""From the answers of one request to a record that can be scored, or to the reason why it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sgpu.logs.records import MAX_SAMPLES, MAX_TEXT, Item, LogRecord, Reason, Rejected, Sample, why_too_few
from sgpu.logs.rows.fault import RowFault
from sgpu.logs.rows.fields import storable
from sgpu.logs.rows.question import Question

# Words of OpenAI, vLLM, Anthropic, Gemini, Azure and OpenTelemetry for why an answer ended.
_ENDS = {
    Reason.CONTENT_FILTER: (
        "content_filter content-filter contentfilter safety recitation blocklist prohibited_content spii"
    ),
    Reason.TOOL_CALL: "tool_calls tool_call function_call tool_use",
    Reason.REFUSAL: "refusal",
    Reason.FAILED_REQUEST: "error abort aborted failed cancelled",
}
_REASON_OF_END = {word: reason for reason, words in _ENDS.items() for word in words.split()}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as it was logged; ``text`` is checked later. ``index``: its place, if it was told."""

    text: Any
    finish_reason: Any = None
    index: Any = None
    refused: bool = False
    called_tool: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One logged request, its identity checked, its answers not yet. ``asked``: answers asked for, if known.

    ``groups``: a single answer of it may be grouped with others to the same question.
    """

    request_id: str
    timestamp: int
    model: str
    route: str | None
    answers: Sequence[Answer]
    question: Question | None = None
    asked: int | None = None
    label: int | None = None
    join_key: str | None = None
    groups: bool = True


def assemble(request: Request) -> Item:
    """The record of a request: its usable answers in the order of their index. Raises RowFault.

    A request for one answer becomes a record of one sample if it can be joined or grouped; any other request
    with fewer than two usable answers is rejected.
    """
    if len(request.answers) > MAX_SAMPLES:
        raise RowFault(Reason.TOO_MANY, f"{len(request.answers)} answers, above {MAX_SAMPLES}")
    samples, dropped = _sifted(request.answers)
    question = request.question or Question()
    single = len(request.answers) == 1 and request.asked in (None, 1)
    key = question.group_key(request.model) if single and request.groups and not request.join_key else None
    too_few = why_too_few(len(samples), dropped)
    if too_few and not (samples and single and (key or request.join_key)):
        return Rejected(
            too_few,
            _counted(len(samples), dropped),
            request.request_id,
            request.model,
            request.route,
            request.timestamp,
            question.json,
            request.join_key,
        )
    return LogRecord(
        request_id=request.request_id,
        timestamp=request.timestamp,
        model=request.model,
        route=request.route,
        samples=samples,
        dropped=tuple(str(reason) for reason in dropped),
        prompt_sha256=question.sha256,
        label=request.label,
        group_key=key,
        join_key=request.join_key,
        prompt=question.json,
    )


def _sifted(answers: Sequence[Answer]) -> tuple[tuple[Sample, ...], list[Reason]]:
    samples, dropped = [], []
    # Where a place is missing or given twice, the order of the log stands.
    for place, answer in sorted(enumerate(answers), key=_place):
        text = checked_text(answer.text, place)
        end = answer.finish_reason.lower()[:64] if isinstance(answer.finish_reason, str) else None
        reason = _why_dropped(answer, text, end)
        if reason:
            dropped.append(reason)
        else:
            samples.append(Sample(text, end if end is None or storable(end) else None))
    return tuple(samples), dropped


def _place(answer: tuple[int, Answer]) -> int:
    index = answer[1].index
    return index if isinstance(index, int) and not isinstance(index, bool) else answer[0]


def _why_dropped(answer: Answer, text: str, end: str | None) -> Reason | None:
    if answer.called_tool:
        return Reason.TOOL_CALL
    if answer.refused:
        return Reason.REFUSAL
    if end in _REASON_OF_END:
        return _REASON_OF_END[end]
    return None if text.strip() else Reason.EMPTY


def checked_text(value: Any, place: int) -> str:
    """The text of an answer, empty where it is None. Raises RowFault."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RowFault(Reason.BAD_VALUE, f"answer {place} is a {type(value).__name__}, not text")
    if len(value) > MAX_TEXT:
        raise RowFault(Reason.OVERSIZE, f"answer {place} has {len(value)} characters, above {MAX_TEXT}")
    if not storable(value):
        raise RowFault(Reason.ENCODING, f"answer {place} holds half of a surrogate pair")
    return value


def _counted(usable: int, dropped: Sequence[Reason]) -> str:
    counts = {reason: dropped.count(reason) for reason in dict.fromkeys(dropped)}
    left_out = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    return f"{usable} usable answers, below 2" + (f"; left out: {left_out}" if left_out else "")
