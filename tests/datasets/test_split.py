"""The hashed split: disjoint groups, a test set that nothing moves, nested training sets."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from sgpu.datasets.base import Question, RejectedRow, Source
from sgpu.datasets.split import (
    RULE,
    RULE_WITH_CLASSES,
    SplitResult,
    question_batches,
    questions_table,
    row_sha256,
    split_questions,
)
from sgpu.errors import DataError, UsageError
from sgpu.storage.tables import QUESTIONS


def question(i: int, group: str | None = None) -> Question:
    return Question(f"q{i}", f"Text {i}?", ("yes",), group or f"q{i}", {"kind": "k"})


def source(*questions: Question) -> Source:
    return Source("toy", "rev-1", "CC0", "", {"all": list(questions)})


def ids(split: SplitResult, *sides: str) -> list[str]:
    return [row.question.question_id for row in split.rows if row.split in sides]


def groups_are_whole(split: SplitResult) -> bool:
    return len({(r.question.group, r.split) for r in split.rows}) == len(
        {r.question.group for r in split.rows}
    )


POOL = [question(i) for i in range(100)]
GROUPED = [question(i, f"g{i // 4}") for i in range(100)]


def in_class(name: str, i: int, group: str | None = None) -> Question:
    return Question(f"{name}{i}", "What is it?", (name,), group or f"{name}{i}", stratum=name)


CLASSES = "abcd"
BALANCED = [in_class(name, i) for name in CLASSES for i in range(50)]
# Two classes run out.
UNEQUAL = [in_class(name, i) for name, n in zip(CLASSES, (5, 20, 50, 50), strict=True) for i in range(n)]


def test_order_is_the_sha256_of_data_set_seed_and_id() -> None:
    split = split_questions(source(*POOL), n_train=0, n_test=100, seed=7)
    expected = sorted(
        (q.question_id for q in POOL), key=lambda i: hashlib.sha256(f"toy\x1f7\x1f{i}".encode()).digest()
    )
    assert ids(split, "test") == expected


def test_row_order_of_the_source_changes_nothing() -> None:
    shuffled = random.Random(1).sample(GROUPED, len(GROUPED))
    assert split_questions(source(*GROUPED), 50, 20, 0) == split_questions(source(*shuffled), 50, 20, 0)


@pytest.mark.parametrize("n_train", [0, 30])
def test_validation_questions_can_be_asked_for_beside_those_that_train(n_train: int) -> None:
    split = split_questions(source(*GROUPED), n_train, 20, seed=0, n_validation=24)
    plain = split_questions(source(*GROUPED), n_train, 20, seed=0, validation_share=0)
    assert split.granted == {"train": n_train, "validation": 24, "test": 20}
    assert split.requested == {"train": n_train + 24, "test": 20}
    for side in ("train", "test"):
        assert ids(split, side) == ids(plain, side)
    assert groups_are_whole(split)


def test_another_seed_gives_another_test_set() -> None:
    first, second = (split_questions(source(*POOL), 50, 20, seed) for seed in (0, 1))
    assert set(ids(first, "test")) != set(ids(second, "test"))


@pytest.mark.parametrize(
    "pool",
    [POOL, GROUPED, BALANCED, UNEQUAL],
    ids=["single rows", "groups", "equal classes", "unequal classes"],
)
def test_n_train_never_moves_the_test_set(pool: list[Question]) -> None:
    tests = {tuple(ids(split_questions(source(*pool), n, 18, 0), "test")) for n in (0, 1, 30, 80, 999)}
    assert len(tests) == 1


@pytest.mark.parametrize("pool", [POOL, GROUPED], ids=["single rows", "groups of four"])
def test_a_smaller_training_set_is_a_prefix_of_a_larger_one(pool: list[Question]) -> None:
    small, large = (ids(split_questions(source(*pool), n, 20, 0), "train", "validation") for n in (30, 70))
    assert len(small) == 30 and len(large) == 70
    assert large[:30] == small


def test_n_train_counts_validation_which_is_the_last_tenth() -> None:
    split = split_questions(source(*POOL), n_train=50, n_test=20, seed=0)
    assert split.granted == {"train": 45, "validation": 5, "test": 20}
    without = split_questions(source(*POOL), n_train=50, n_test=20, seed=0, validation_share=0)
    assert ids(split, "train") + ids(split, "validation") == ids(without, "train")


@pytest.mark.parametrize("n_test", range(1, 40, 3))
def test_no_group_stands_on_two_sides(n_test: int) -> None:
    split = split_questions(source(*GROUPED), n_train=45, n_test=n_test, seed=0, validation_share=0.3)
    assert groups_are_whole(split)
    assert split.granted["test"] == n_test


def test_groups_of_a_separate_test_pool_are_taken_out_of_train() -> None:
    train, test = (
        [question(i, f"g{i % 10}") for i in range(40)],
        [question(100 + i, f"g{i}") for i in range(3)],
    )
    split = split_questions(Source("toy", "r", "", "", {"train": train, "test": test}), 40, 1, 0)
    assert split.granted["train"] + split.granted["validation"] == 28
    assert not {r.question.group for r in split.rows if r.split != "test"} & {"g0", "g1", "g2"}


def test_a_small_pool_grants_less_than_requested() -> None:
    split = split_questions(source(*POOL), n_train=500, n_test=30, seed=0)
    assert split.requested == {"train": 500, "test": 30}
    assert split.granted == {"train": 63, "validation": 7, "test": 30}


def test_ids_sha256_is_over_the_sorted_ids() -> None:
    split = split_questions(source(*POOL), 50, 20, 0)
    text = "\n".join(sorted(ids(split, "test")))
    assert split.ids_sha256["test"] == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ({"all": [question(1), question(1)]}, "1 question ids more than once, the first 'q1'"),
        ({"all": []}, "has no questions"),
        ({"dev": POOL}, r"pools \['dev'\]"),
        ({"all": [*BALANCED, question(1)]}, "200 of 201 questions have a class"),
    ],
)
def test_a_source_that_cannot_be_split_is_refused(pools: dict[str, list[Question]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        split_questions(Source("toy", "r", "", "", pools), 10, 10, 0)


@pytest.mark.parametrize(
    ("n_train", "n_test", "share"), [(-1, 5, 0.1), (5, -1, 0.1), (0, 0, 0.1), (5, 5, 1.0)]
)
def test_numbers_out_of_range_are_refused(n_train: int, n_test: int, share: float) -> None:
    with pytest.raises(UsageError):
        split_questions(source(*POOL), n_train, n_test, 0, share)


def classes(split: SplitResult, *sides: str) -> list[str | None]:
    return [row.question.stratum for row in split.rows if row.split in sides]


def key(i: str) -> str:
    return hashlib.sha256(f"toy\x1f0\x1f{i}".encode()).hexdigest()


def test_classes_take_turns_by_name_each_in_key_order() -> None:
    split = split_questions(source(*BALANCED), n_train=0, n_test=10, seed=0)
    lanes = [sorted((f"{name}{i}" for i in range(50)), key=key) for name in CLASSES]
    assert ids(split, "test") == [lanes[turn % 4][turn // 4] for turn in range(10)]


@pytest.mark.parametrize(("n", "counts"), [(40, (10, 10, 10, 10)), (42, (11, 11, 10, 10)), (3, (1, 1, 1, 0))])
def test_test_and_train_hold_each_class_in_equal_counts(n: int, counts: tuple[int, ...]) -> None:
    split = split_questions(source(*BALANCED), n_train=n, n_test=n, seed=0)
    wanted = {name: count for name, count in zip(CLASSES, counts, strict=True) if count}
    assert Counter(classes(split, "test")) == wanted
    assert Counter(classes(split, "train", "validation")) == wanted


def test_a_class_that_is_too_small_is_filled_from_the_others() -> None:
    split = split_questions(source(*UNEQUAL), n_train=0, n_test=60, seed=0)
    # 5 of each; the other 40 go to b, c and d in turn: 13 each, and one more to b.
    assert Counter(classes(split, "test")) == {"a": 5, "b": 19, "c": 18, "d": 18}


def test_a_small_class_keeps_its_turn_until_it_has_no_rows() -> None:
    order = classes(split_questions(source(*UNEQUAL), n_train=0, n_test=125, seed=0), "test")
    assert (
        order[:20] == list("abcd" * 5) and order[20:65] == list("bcd" * 15) and order[65:] == list("cd" * 30)
    )


@pytest.mark.parametrize("pool", [BALANCED, UNEQUAL], ids=["equal classes", "unequal classes"])
def test_with_classes_a_smaller_training_set_is_a_prefix_of_a_larger_one(pool: list[Question]) -> None:
    small, large = (
        ids(split_questions(source(*pool), n, 20, 0, validation_share=0), "train") for n in (30, 70)
    )
    assert len(small) == 30 and large[:30] == small


@pytest.mark.parametrize("n", [25, 30, 40, 70])
def test_validation_of_equal_classes_is_the_tail_of_train(n: int) -> None:
    split = split_questions(source(*BALANCED), n, 20, 0)
    without = split_questions(source(*BALANCED), n, 20, 0, validation_share=0)
    assert ids(split, "train") + ids(split, "validation") == ids(without, "train")


def test_validation_holds_its_share_of_every_class_where_some_have_run_out() -> None:
    split = split_questions(source(*UNEQUAL), n_train=125, n_test=0, seed=0, validation_share=0.2)
    assert Counter(classes(split, "validation")) == {"a": 1, "b": 4, "c": 10, "d": 10}
    assert Counter(classes(split, "train")) == {"a": 4, "b": 16, "c": 40, "d": 40}


def test_groups_with_classes_stay_whole() -> None:
    pool = [in_class(name, i, f"{name}-{i // 3}") for name in CLASSES for i in range(30)]
    split = split_questions(source(*pool), n_train=60, n_test=24, seed=0, validation_share=0.2)
    assert groups_are_whole(split)
    assert Counter(classes(split, "test")) == dict.fromkeys(CLASSES, 6)
    assert set(classes(split, "validation")) == set(CLASSES)


def test_two_pools_are_each_in_equal_counts() -> None:
    test = [in_class(name, 100 + i) for name in CLASSES for i in range(10)]
    split = split_questions(Source("toy", "r", "", "", {"train": BALANCED, "test": test}), 80, 20, 0)
    assert Counter(classes(split, "test")) == dict.fromkeys(CLASSES, 5)
    assert Counter(classes(split, "train")) == dict.fromkeys(CLASSES, 18)


def test_the_rule_has_another_name_for_classes_alone() -> None:
    assert split_questions(source(*POOL), 10, 10, 0).rule == RULE == "hashed-groups-1"
    assert split_questions(source(*BALANCED), 10, 10, 0).rule == RULE_WITH_CLASSES != RULE


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
