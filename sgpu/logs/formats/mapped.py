"""Rows of any shape, by a map of where their fields are: that of a user (`--map FILE`), or one of our own.

    answers: result.replies        # a list of texts, of objects (with `text`), or one text
    text: message.content          # where the text is in each of the objects; default: text, else content
    question: input.prompt         # text or chat messages; single answers to one question are one set
    id: call_id
    time: called_at
    model: model_name
    route: service
    defaults: {model: my-model}    # what stands for a field that a row does not have

Paths are keys with dots between; a number is a place in a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from sgpu.logs.records import Item, NoAnswer, Reason
from sgpu.logs.rows.answers import LoggedAnswer, Request, assemble
from sgpu.logs.rows.envelopes import at
from sgpu.logs.rows.fields import RowFault, checked, count_of, identity_of, label_of, structured, text_of
from sgpu.logs.rows.question import LoggedQuestion, is_whole, sha256_of
from sgpu.study.specs import Strict

Path = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^.]+(\.[^.]+){0,9}$")]
_COUNTED = re.compile(r"[0-9]{1,12}")
NO_MODEL = "unknown"  # the model of rows that name none, such as those of vLLM's RequestOutput


class Defaults(Strict):
    """What stands for a field that a row does not have."""

    model: str | None = Field(default=None, min_length=1, max_length=512)
    route: str | None = Field(default=None, min_length=1, max_length=512)


class FieldMap(Strict):
    """Where the fields of a row are; see the module."""

    answers: Path
    id: Path
    text: Path | None = None
    finish_reason: Path | None = None
    question: Path | None = None
    time: Path | None = None
    model: Path | None = None
    route: Path | None = None
    group_id: Path | None = None
    label: Path | None = None
    n: Path | None = None
    defaults: Defaults = Defaults()

    @property
    def columns(self) -> set[str]:
        """The columns of a Parquet file that rows are read from."""
        paths = self.model_dump(exclude={"defaults"}, exclude_none=True).values()
        return {path.partition(".")[0] for path in paths}


class MappedRows:
    """Rows that a map describes. ``needs``: the keys that tell them, where they are told by themselves."""

    def __init__(self, name: str, map: FieldMap, needs: tuple[str, ...] = ()) -> None:
        self.name = name
        self._map, self._needs = map, needs

    def recognises(self, record: dict[str, Any]) -> bool:
        listed = isinstance(structured(at(record, self._map.answers)), list)
        return bool(self._needs) and listed and all(key in record for key in self._needs)

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        values = {key: self._value(record, key) for key in ("id", "time", "model", "route")}
        identity = {"request_id": values.pop("id"), "timestamp": values.pop("time"), **values}
        yield checked(lambda: self._item(record, identity), **identity)

    def _value(self, record: Mapping[str, Any], field: str) -> Any:
        path = getattr(self._map, field)
        value = None if path is None else at(record, path)
        return getattr(self._map.defaults, field, None) if value in (None, "") else value

    def _item(self, record: Mapping[str, Any], identity: Mapping[str, Any]) -> Item:
        question = structured(self._value(record, "question"))
        if not isinstance(question, str | list | None):
            question = [question]
        n_requested = count_of(self._value(record, "n"), str(self._map.n))
        names = [str(getattr(self._map, field)) for field in ("id", "time", "model", "route")]
        request = Request(
            **identity_of(identity, *names, undated=True, unnamed=NO_MODEL),
            answers=self._answers(record),
            question=LoggedQuestion(
                question,
                group_id=text_of(self._value(record, "group_id"), str(self._map.group_id)),
                whole=is_whole(question),
            ),
            n_requested=n_requested,
            label=label_of(self._value(record, "label")),
        )
        return assemble(request)

    def _answers(self, record: Mapping[str, Any]) -> list[LoggedAnswer]:
        answers = structured(at(record, self._map.answers))
        if answers is None:
            raise RowFault(Reason.MISSING_FIELD, f"{self._map.answers} is missing")
        return [self._answer(answer) for answer in (answers if isinstance(answers, list) else [answers])]

    def _answer(self, answer: Any) -> LoggedAnswer:
        if not isinstance(answer, Mapping):
            return LoggedAnswer(answer)
        paths = (self._map.text,) if self._map.text else ("text", "content")
        text = next((value for path in paths if (value := at(answer, path)) is not None), None)
        end = at(answer, self._map.finish_reason or "finish_reason")
        return LoggedAnswer(text, end, answer.get("index"))


class RequestOutputs(MappedRows):
    """vLLM's `RequestOutput`; one that is not ``finished`` is followed by a later one of the same request.

    `LLM.generate` counts its ids from 0 in each process, so that those of two runs are the same. Such an id
    gets a hash of what was asked and answered: what is delivered twice still has one id.
    """

    def _item(self, record: Mapping[str, Any], identity: Mapping[str, Any]) -> Item:
        if record.get("finished") is False:
            return NoAnswer("unfinished")
        request_id = text_of(identity["request_id"], self._map.id)
        if request_id and _COUNTED.fullmatch(request_id):
            call = sha256_of([record.get(key) for key in ("prompt", "outputs", "metrics")])
            identity = {**identity, "request_id": f"{request_id}-{call[:16]}"}
        return super()._item(record, identity)


# vLLM's RequestOutput names no model; our own rows for `sgpu fit` may not.
VLLM = RequestOutputs(
    "vllm",
    FieldMap(
        answers="outputs", id="request_id", question="prompt", time="metrics.arrival_time", model="model"
    ),
    ("request_id", "prompt", "outputs", "finished"),
)
FIT = MappedRows(
    "fit",
    FieldMap(
        answers="answers", id="question_id", question="question", time="timestamp", model="model",
        route="route", label="label",
    ),
    ("question_id", "answers"),
)  # fmt: skip
