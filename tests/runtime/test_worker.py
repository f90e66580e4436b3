"""What a worker's fields say: the content of its table, and what its actors hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from sgpu.registry import Registry
from sgpu.runtime.worker import NOT_CONTENT, Held, StageWorker, content_of, held_in, name_in

ENTRIES = Registry("judge", {"alias": "sgpu.judges.rules:AliasJudge"}, group="sgpu.judges")


@dataclass(frozen=True)
class Lamp(Held):
    name: str = field(metadata=name_in(ENTRIES))
    device: str = field(default="cpu", metadata=NOT_CONTENT)


@dataclass
class Reading(StageWorker):
    lamp: Lamp
    pages: int
    path: str = field(default="", metadata=NOT_CONTENT)


def test_paths_and_devices_are_no_content() -> None:
    expected = {"lamp": {"name": "alias"}, "pages": 3}
    assert content_of(Reading(Lamp("alias"), 3)) == expected
    assert content_of(Reading(Lamp("alias", "cuda"), 3, "/elsewhere")) == expected


def test_workers_hold_the_same_whatever_else_they_do() -> None:
    assert held_in(Reading(Lamp("alias"), 3)) == held_in(Reading(Lamp("alias"), 9, "/elsewhere"))
    assert held_in(Reading(Lamp("alias"), 3)) != held_in(Reading(Lamp("alias", "cuda"), 3))
