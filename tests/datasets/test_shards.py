"""Split questions become rows with image bytes, in the order in which archives are read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from sgpu.datasets.base import Question, RejectedRow, Source
from sgpu.datasets.shards import question_batches, questions_table, row_sha256
from sgpu.datasets.split import split_questions
from sgpu.errors import DataError
from sgpu.storage.tables import QUESTIONS


@dataclass(frozen=True)
class Picture:
    place: int
    gone: bool = False
    log: list[str] = field(default_factory=list, compare=False)

    @property
    def order(self) -> tuple[str, int, str]:
        return ("archive", self.place, "")

    def read(self) -> bytes:
        self.log.append(str(self.place))
        if self.gone:
            raise DataError(f"picture {self.place} is gone")
        return f"picture {self.place}".encode()


def rows(questions: list[Question], unreadable: list[RejectedRow]) -> list[dict[str, object]]:
    split = split_questions(Source("toy", "1", "", "", {"all": questions}), 100, 20, seed=0)
    return [row for batch in question_batches(split, unreadable) for row in batch.to_pylist()]


def test_images_are_read_in_the_order_in_which_they_lie() -> None:
    log: list[str] = []
    questions = [Question(f"q{i}", "?", ("x",), f"g{i}", image=Picture(i, log=log)) for i in range(150)]
    unreadable: list[RejectedRow] = []
    found = rows(questions, unreadable)
    places = [int(place) for place in log]
    assert places == sorted(places) and len(places) == len(found) == 120
    assert not unreadable


def test_a_row_carries_bytes_and_hashes() -> None:
    (row,) = rows([Question("q", "Was?", ("x", "y"), "g", image=Picture(7))], [])
    image = hashlib.sha256(b"picture 7").hexdigest()
    assert (row["image"], row["image_sha256"]) == (b"picture 7", image)
    expected = hashlib.sha256(json.dumps(["Was?", ["x", "y"], image]).encode()).hexdigest()
    assert row["row_sha256"] == expected == row_sha256("Was?", ("x", "y"), image)


def test_an_image_that_is_gone_is_told_and_the_row_stays() -> None:
    unreadable: list[RejectedRow] = []
    (row,) = rows([Question("q", "?", ("x",), "g", image=Picture(3, gone=True))], unreadable)
    assert row["image"] == b""
    assert [(one.row, one.reason) for one in unreadable] == [("q", "picture 3 is gone")]


def test_questions_without_images_have_none() -> None:
    (row,) = rows([Question("q", "?", ("x",), "g", all_answers=("x", "x", "z"))], [])
    assert row["image"] is None and row["image_sha256"] is None
    assert row["all_answers"] == ["x", "x", "z"]


def test_the_table_of_a_split_has_the_schema_and_ranks_each_side() -> None:
    questions = [Question(f"q{i}", "?", ("x",), f"g{i}", {"kind": "k"}) for i in range(100)]
    table = questions_table(split_questions(Source("toy", "1", "", "", {"all": questions}), 50, 20, 0))
    assert table.schema.equals(QUESTIONS.schema)
    rows = table.to_pylist()
    for side, count in (("train", 45), ("validation", 5), ("test", 20)):
        assert [row["position"] for row in rows if row["split"] == side] == list(range(count))
    assert json.loads(str(rows[0]["meta"])) == {"kind": "k"}
