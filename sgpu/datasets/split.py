"""Which questions train, validate and test: decided by hashed ids, never by row order or a generator.

The rule (``RULE``). Groups are put in the order of ``seeds.order_key`` and rows in that order inside their
group. The test set is filled first, then train from the groups that follow, so that no group stands on two
sides and another ``n_train`` never moves the test set. A smaller ``n_train`` is a prefix of a larger one.
Validation is the last share of train, so ``n_train`` counts train and validation together.

With classes (``RULE_WITH_CLASSES``), where the questions have a ``stratum``: the groups of each class are
put in that order, and the class with the fewest rows so far gives the next group, ties by the name of the
class. So every prefix holds the classes in equal counts; where one has no rows left, the others go on.
Validation is then the last share of each class.

`question_batches` gives the rows of a split for the questions table, with the bytes of their images, a batch
at a time.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, cast

import pyarrow as pa

from sgpu.datasets.base import Question, RejectedRow, Source
from sgpu.errors import DataError, UsageError
from sgpu.hashing import order_key, sha256_hex
from sgpu.storage.tables import QUESTIONS

RULE = "hashed-groups-1"
RULE_WITH_CLASSES = "hashed-groups-2"
Split = Literal["train", "validation", "test"]
# Rows of one row group: what a reader holds at once. Images of 4 MB each make 256 MB of 64 of them.
IMAGE_ROWS = 64
TEXT_ROWS = 8192


@dataclass(frozen=True)
class SplitRow:
    """A question with its split and its rank in key order inside that split."""

    question: Question
    split: Split
    position: int


@dataclass(frozen=True)
class SplitResult:
    """``requested`` and ``granted`` differ where a pool is smaller than asked for; both go to the manifest.

    ``requested`` has "train" (validation included) and "test"; ``granted`` and ``ids_sha256`` (over the
    sorted ids, one a line) have "train", "validation" and "test".
    """

    dataset: str
    revision: str
    seed: int
    rows: list[SplitRow]
    requested: dict[str, int]
    rule: str = RULE
    granted: dict[str, int] = field(init=False)
    ids_sha256: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        ids: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
        for row in self.rows:
            ids[row.split].append(row.question.question_id)
        object.__setattr__(self, "granted", {split: len(members) for split, members in ids.items()})
        object.__setattr__(self, "ids_sha256", {split: ids_sha256(members) for split, members in ids.items()})


def ids_sha256(ids: Iterable[str]) -> str:
    """sha256 of the sorted ids, one a line."""
    return sha256_hex("\n".join(sorted(ids)))


def split_questions(
    source: Source,
    n_train: int,
    n_test: int,
    seed: int,
    validation_share: float = 0.1,
    n_validation: int | None = None,
) -> SplitResult:
    """Split a source by the rule above; ``n_train`` includes the validation rows.

    With ``n_validation`` they are the rows that follow train instead, whole groups but for the last.
    A group that ``n_test`` cuts gives the rest of its rows to nobody. Where train and test have a pool
    each, groups of the test pool are taken out of the train pool first. A number above what the pool holds
    takes all of it. Raises UsageError for numbers out of range, DataError for pools that cannot be split.
    """
    if n_train < 0 or n_test < 0 or n_train + n_test == 0:
        raise UsageError(f"n_train is {n_train} and n_test {n_test}; give two counts >= 0, one of them > 0")
    train_pool, test_pool = _pools(source)
    _check_unique_ids(source)
    rule = RULE_WITH_CLASSES if _has_classes(source) else RULE
    test = _in_order(source.name, seed, test_pool)[:n_test]
    test_groups = {q.group for q in (test if train_pool is test_pool else test_pool)}
    ordered = _in_order(source.name, seed, [q for q in train_pool if q.group not in test_groups])
    train = ordered[:n_train]
    fitted, validation = hold_out(train, 0 if n_validation else validation_share)
    if n_validation:
        train_groups = {q.group for q in train}
        validation = [q for q in ordered[n_train:] if q.group not in train_groups][:n_validation]
    rows = [*ranked(fitted, "train"), *ranked(validation, "validation"), *ranked(test, "test")]
    requested = {"train": n_train + (n_validation or 0), "test": n_test}
    return SplitResult(source.name, source.revision, seed, rows, requested, rule)


def given_split(source: Source, splits: Sequence[str], seed: int, validation_share: float) -> SplitResult:
    """As a file of one pool says: ``splits`` has "train", "validation" or "test" for each of its questions.

    Without validation rows these are held out of train. Raises DataError for a group in train and in test.
    """
    sides: dict[Split, list[Question]] = {"train": [], "validation": [], "test": []}
    questions = source.pools["all"]
    split_of = {question.question_id: split for question, split in zip(questions, splits, strict=True)}
    for question in in_key_order(source.name, seed, questions):
        sides[cast(Split, split_of[question.question_id])].append(question)
    tested = {question.group for question in sides["test"]}
    if shared := sorted({q.group for q in (*sides["train"], *sides["validation"])} & tested):
        raise DataError(
            f"{len(shared)} groups stand in train and in test, the first {shared[0][:80]!r}. "
            "Give all rows of a group the same split, or leave the column group out."
        )
    requested = {"train": len(sides["train"]) + len(sides["validation"]), "test": len(sides["test"])}
    if not sides["validation"]:
        sides["train"], sides["validation"] = hold_out(sides["train"], validation_share)
    rows = [row for side, members in sides.items() for row in ranked(members, side)]
    return SplitResult(source.name, source.revision, seed, rows, requested, rule="given by the file")


def in_key_order(dataset: str, seed: int, questions: Iterable[Question]) -> list[Question]:
    """Groups by the key of their name, rows by the key of their id inside their group."""
    keyed = [
        (order_key(dataset, seed, q.group), q.group, order_key(dataset, seed, q.question_id), q)
        for q in questions
    ]
    return [entry[3] for entry in sorted(keyed, key=lambda entry: entry[:3])]


def interleaved(questions: Iterable[Question]) -> list[Question]:
    """Groups that are in key order, mixed so that every prefix has the classes in equal counts.

    A group of several classes stands with the class of its first row.
    """
    by_class: dict[str, list[list[Question]]] = defaultdict(list)
    for _, rows in groupby(questions, key=lambda q: q.group):
        group = list(rows)
        by_class[group[0].stratum or ""].append(group)
    waiting = {name: iter(groups) for name, groups in by_class.items()}
    order: list[Question] = []
    fewest = [(0, name) for name in by_class]
    heapq.heapify(fewest)
    while fewest:
        count, name = heapq.heappop(fewest)
        if group := next(waiting[name], []):
            order.extend(group)
            heapq.heappush(fewest, (count + len(group), name))
    return order


def hold_out(train: list[Question], share: float) -> tuple[list[Question], list[Question]]:
    """Cut the last ``share`` of rows off ``train``; a group at the cut stays in train whole.

    Where the rows have classes it is the last ``share`` of each, rounded so that the sum stays the same.
    """
    if not 0 <= share < 1:
        raise UsageError(f"validation_share is {share}; give a value in [0, 1)")
    if any(question.stratum is not None for question in train):
        return _hold_out_of_classes(train, share)
    first = len(train) - int(len(train) * share)
    for group, rows in groupby(train[first:], key=lambda q: q.group):
        if first == 0 or group != train[first - 1].group:
            break
        first += len(list(rows))
    return train[:first], train[first:]


def _hold_out_of_classes(train: list[Question], share: float) -> tuple[list[Question], list[Question]]:
    groups = [list(rows) for _, rows in groupby(train, key=lambda q: q.group)]
    sizes: Counter[str | None] = Counter()
    for group in groups:
        sizes[group[0].stratum] += len(group)
    total = int(len(train) * share)
    held_out: set[int] = set()
    n_held: Counter[str | None] = Counter()
    # Whole shares first; then the rows that rounding leaves, from the end too, so that the cut of balanced
    # classes is the plain tail and smaller training sets stay prefixes.
    for extra in (0, 1):
        for position in reversed(range(len(groups))):
            name, n_rows = groups[position][0].stratum, len(groups[position])
            bound = min(sizes[name] * total // len(train) + extra, n_held[name] + total - n_held.total())
            if position not in held_out and n_held[name] + n_rows <= bound:
                held_out.add(position)
                n_held[name] += n_rows
    fitted = [q for position, group in enumerate(groups) if position not in held_out for q in group]
    return fitted, [q for position in sorted(held_out) for q in groups[position]]


def ranked(questions: list[Question], split: Split) -> list[SplitRow]:
    """Questions in key order as rows of one split."""
    return [SplitRow(question, split, position) for position, question in enumerate(questions)]


def _pools(source: Source) -> tuple[list[Question], list[Question]]:
    names: Collection[str] = set(source.pools)
    if names == {"all"}:
        return source.pools["all"], source.pools["all"]
    if names == {"train", "test"}:
        return source.pools["train"], source.pools["test"]
    raise DataError(
        f"data set {source.name!r} has the pools {sorted(names)}; give 'all', or 'train' and 'test'"
    )


def _in_order(dataset: str, seed: int, questions: list[Question]) -> list[Question]:
    ordered = in_key_order(dataset, seed, questions)
    return interleaved(ordered) if any(q.stratum is not None for q in ordered) else ordered


def _has_classes(source: Source) -> bool:
    with_class = [question.stratum is not None for pool in source.pools.values() for question in pool]
    if any(with_class) and not all(with_class):
        raise DataError(
            f"data set {source.name!r}: {sum(with_class)} of {len(with_class)} questions have a class; give "
            "all of them one, or none"
        )
    return any(with_class)


def _check_unique_ids(source: Source) -> None:
    counts = Counter(question.question_id for pool in source.pools.values() for question in pool)
    repeated = sorted(question_id for question_id, count in counts.items() if count > 1)
    if repeated:
        raise DataError(
            f"data set {source.name!r} has {len(repeated)} question ids more than once, the first "
            f"{repeated[0]!r}; ids must be unique over all pools"
        )
    if not counts:
        raise DataError(f"data set {source.name!r} has no questions")


def question_batches(split: SplitResult, unreadable: list[RejectedRow]) -> Iterator[pa.Table]:
    """The rows of a split, ordered by where their images lie, so that each archive is read once.

    An image that cannot be read stands as empty bytes, which the sampling stage quarantines; the reason is
    appended to ``unreadable``.
    """
    with_images = any(row.question.image is not None for row in split.rows)
    rows = sorted(split.rows, key=_image_order) if with_images else split.rows
    size = IMAGE_ROWS if with_images else TEXT_ROWS
    for start in range(0, len(rows), size):
        records = [_record(row, split.dataset, unreadable) for row in rows[start : start + size]]
        yield pa.Table.from_pylist(records, schema=QUESTIONS.schema)


def questions_table(split: SplitResult) -> pa.Table:
    """All rows of a split without images, in its order."""
    return pa.concat_tables([QUESTIONS.schema.empty_table(), *question_batches(split, [])])


def row_sha256(question: str, references: tuple[str, ...], image_sha256: str | None) -> str:
    """What a source changed in a row shows here."""
    content = json.dumps([question, list(references), image_sha256], ensure_ascii=False)
    return sha256_hex(content.encode("utf-8", "surrogatepass"))


def _image_order(row: SplitRow) -> tuple[str, int, str]:
    image = row.question.image
    return image.order if image else ("", 0, row.question.question_id)


def _record(row: SplitRow, dataset: str, unreadable: list[RejectedRow]) -> dict[str, Any]:
    question = row.question
    image = _image(question, dataset, unreadable)
    image_sha256 = sha256_hex(image) if image is not None else None
    return {
        "question_id": question.question_id,
        "group": question.group,
        "question": question.text,
        "references": list(question.references),
        "all_answers": list(question.all_answers or question.references),
        "image": image,
        "image_sha256": image_sha256,
        "split": row.split,
        "position": row.position,
        "meta": json.dumps(question.meta, sort_keys=True, ensure_ascii=False),
        "row_sha256": row_sha256(question.text, question.references, image_sha256),
    }


def _image(question: Question, dataset: str, unreadable: list[RejectedRow]) -> bytes | None:
    if question.image is None:
        return None
    try:
        return question.image.read()
    except DataError as error:
        remedy = "Fetch the source again; the question is quarantined when it is asked"
        unreadable.append(RejectedRow(dataset, question.question_id, str(error), remedy))
        return b""
