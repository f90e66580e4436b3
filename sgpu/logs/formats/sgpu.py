"""SGPU's own schema: one row per request, with all its answers or with ONE.

    {"schema_version": 1, "request_id": "r-1", "timestamp": "2026-11-20T23:59:01Z", "model": "m",
     "messages": [{"role": "user", "content": "..."}], "images": [{"sha256": "...", "uri": "s3://..."}],
     "samples": [{"index": 0, "text": "...", "finish_reason": "stop"}, ...],
     "sampling": {"n": 20, "temperature": 1.0, "seed": null},
     "label": null, "group_id": null, "route": "support-bot", "metadata": {}}

request_id, timestamp, model and samples are required; "prompt" may stand for "messages". In Parquet, nested
columns or JSON strings.

N rows with one answer each to one question are brought together later:

    {"request_id": "r-1", "timestamp": 1795219141, "model": "m", "prompt": "...", "text": "...",
     "sampling": {"temperature": 1.0}, "group_id": null}

The answer is ``text``, or the only one of ``samples``. Rows belong together by group_id (of the row or of its
metadata), else by model, question, images and sampling; a row with neither cannot be grouped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sgpu.logs.records import Item, Reason
from sgpu.logs.rows.answers import LoggedAnswer, Request, assemble
from sgpu.logs.rows.fields import (
    RowFault,
    checked,
    count_of,
    identity_of,
    label_of,
    mapping_of,
    objects_of,
    show_value,
    structured,
    text_of,
)
from sgpu.logs.rows.question import LoggedQuestion, is_whole, refuse_several

VERSION = 1


class ResponseSets:
    """Rows with several answers. A row with one is rejected: it is the `single` format that may have one."""

    name = "sgpu"
    single = False

    def recognises(self, record: dict[str, Any]) -> bool:
        return is_own(record) and has_one_answer(record) is self.single

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        identity = {key: record.get(key) for key in ("request_id", "timestamp", "model", "route")}
        yield checked(lambda: assemble(request_of(record, groups=self.single)), **identity)


class SingleAnswers(ResponseSets):
    """Rows with one answer, each with the key of its group."""

    name = "single"
    single = True


def is_own(record: Mapping[str, Any]) -> bool:
    """Whether the row is of our schema, if perhaps with a required field missing."""
    if "custom_id" in record or "choices" in record:
        return False
    return "samples" in record or ("request_id" in record and "timestamp" in record)


def has_one_answer(record: Mapping[str, Any]) -> bool:
    """Tell whether the row asked for one answer: a ``text``, or one sample where no more were asked for."""
    if record.get("samples") is None:
        return record.get("text") is not None
    samples = structured(record["samples"])
    n_requested = mapping_of(record.get("sampling")).get("n")
    return isinstance(samples, list) and len(samples) == 1 and n_requested in (None, 1)


def request_of(record: Mapping[str, Any], *, groups: bool) -> Request:
    """The checked row. Raises RowFault."""
    version = record.get("schema_version")
    if version not in (None, VERSION):
        raise RowFault(Reason.BAD_VALUE, f"schema_version is {show_value(version)}; {VERSION} is known")
    metadata = mapping_of(record.get("metadata"))
    sampling = mapping_of(record.get("sampling"))
    identity = identity_of(record, "request_id", "timestamp")
    identity["route"] = identity["route"] or text_of(metadata.get("route"), "metadata.route")
    return Request(
        **identity,
        answers=_answers(record),
        question=_question(record, metadata, sampling),
        n_requested=count_of(sampling.get("n"), "sampling.n"),
        label=label_of(metadata.get("label") if record.get("label") is None else record["label"]),
        groups=groups,
    )


def _answers(record: Mapping[str, Any]) -> list[LoggedAnswer]:
    samples = structured(record.get("samples"))
    if samples is None and record.get("text") is not None:
        return [LoggedAnswer(record["text"], record.get("finish_reason"))]
    if samples is None:
        raise RowFault(Reason.MISSING_FIELD, "samples is missing")
    if any("text" not in sample for sample in objects_of(samples, "samples")):
        raise RowFault(Reason.MISSING_FIELD, "a sample has no text")
    return [LoggedAnswer(item["text"], item.get("finish_reason"), item.get("index")) for item in samples]


def _question(
    record: Mapping[str, Any], metadata: Mapping[str, Any], sampling: Mapping[str, Any]
) -> LoggedQuestion:
    messages = structured(record.get("messages"))
    content = messages or record.get("prompt")
    if not isinstance(content, str | list | None):
        raise RowFault(Reason.BAD_VALUE, f"prompt is a {type(content).__name__}, not text")
    refuse_several({"messages" if messages else "prompt": content})
    images = objects_of(structured(record.get("images")) or [], "images")
    hashes = tuple(text_of(image.get("sha256") or image.get("uri"), "image") or "" for image in images)
    group_id = text_of(record.get("group_id"), "group_id")
    group_id = group_id or text_of(metadata.get("group_id"), "metadata.group_id")
    return LoggedQuestion(content, sampling, hashes, group_id, whole=is_whole(content))
