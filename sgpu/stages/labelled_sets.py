"""One's own response sets, read, labelled and split: what a model is fitted to and measured on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sgpu.datasets.responses import ImportedResponses, load_responses
from sgpu.errors import DataError
from sgpu.hashing import order_key
from sgpu.judges.base import JUDGES
from sgpu.judges.labels import judge_rows
from sgpu.no_answer import no_answer
from sgpu.stages.questions import GIVEN_LABELS
from sgpu.study.fit_settings import check_labelling

Votes = Sequence[int | None]  # (N,) 1 right, 0 wrong, None not known


@dataclass(frozen=True)
class LabelledSets:
    """Q response sets that have a label (1 right, 0 wrong): their ids, answers, ``label`` (Q,) and ``split``.

    ``split`` (Q,) is "train", "validation" or "test". ``n`` is the most common number of answers, or the one
    that was asked for. ``judge`` says where labels come from, "given" for those of the file. ``left_out``
    counts the rows that are not here, by reason; ``faults`` are the first few that could not be read. Rows of
    one of the ``groups`` (Q,) depend on each other; a row without one is a group of its own. ``questions``
    and ``votes`` are (Q,) where they are known; votes say which answers of a set are right.
    """

    ids: list[str]
    answers: list[list[str]]
    label: NDArray[np.int64]
    split: NDArray[np.str_]
    n: int
    judge: str
    left_out: dict[str, int]
    faults: tuple[str, ...]
    source: str
    source_sha256: str
    groups: list[str]
    questions: Sequence[str] = ()
    votes: Sequence[Votes | None] = ()

    def part(self, split: str) -> tuple[list[list[str]], NDArray[np.int64]]:
        """The answers and labels of one side of the split."""
        places = np.flatnonzero(self.split == split)
        return [self.answers[row] for row in places], self.label[places]

    def questions_of(self, split: str) -> list[str | None]:
        """Return the questions of one side of the split, None where they are not known."""
        return [
            self.questions[row] if self.questions else None for row in np.flatnonzero(self.split == split)
        ]

    def votes_of(self, split: str) -> list[Votes | None]:
        """Return the votes on the answers of one side of the split, None where they are not known."""
        places = np.flatnonzero(self.split == split)
        return [self.votes[row] if self.votes else None for row in places]

    def independent(self, split: str, seed: int) -> NDArray[np.intp]:
        """Places within `part` of rows that do not depend on each other: one of each group, by the seed.

        Groups that a file has put in train as well are left out.
        """
        places = np.flatnonzero(self.split == split)
        others = (self.split == "train") & (split != "train")
        trained = {self.groups[i] for i in np.flatnonzero(others)}
        drawn: dict[str, int] = {}
        keys = [order_key("group", seed, self.ids[row]) for row in places]
        for row in sorted(range(len(places)), key=keys.__getitem__):
            drawn.setdefault(self.groups[places[row]], row)
        return np.array(sorted(row for group, row in drawn.items() if group not in trained), dtype=np.intp)

    @property
    def counts(self) -> dict[int, int]:
        """How many sets have how many answers."""
        return dict(sorted(Counter(len(answers) for answers in self.answers).items()))


def read_labelled(
    path: Path,
    *,
    n: int | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    calibration_share: float = 0.0,
    judge: str = "alias",
) -> LabelledSets:
    """Read a file of responses, see `sgpu.datasets.responses`, and label what its judge can label.

    Labels of the file are used where it has any; rows without one are left out then, and counted. Otherwise
    ``judge`` ("alias" or "numeric") compares the answers with the references. The shares are of all rows; a
    file with a column split decides itself, and ``calibration_share`` is then of its training rows if it
    names no validation rows. Raises UsageError for shares out of range or another judge, DataError where
    nothing is labelled.
    """
    check_labelling(judge, test_share, calibration_share)
    of_rest = calibration_share / (1 - test_share)
    read = load_responses(path, n, seed=seed, test_share=test_share, validation_share=of_rest, any_count=True)
    labels = read.labels if read.labels is not None else _judged(read, judge)
    answered = pa.array([no_answer(texts) is None for texts in read.responses["answers"].to_pylist()])
    labelled = pc.and_(labels["label"].is_valid(), answered)
    label = labels["label"].filter(labelled).to_numpy()
    if not len(label):
        raise DataError(
            f"{path}: none of {len(labels)} rows has a label, and no references to make one of. "
            "Give a column `label` (1 right, 0 wrong) or `references`."
        )
    return LabelledSets(
        ids=read.responses["question_id"].filter(labelled).to_pylist(),
        answers=read.responses["answers"].filter(labelled).to_pylist(),
        label=label.astype(np.int64),
        split=np.array(read.questions["split"].filter(labelled).to_pylist()),
        n=read.n,
        judge=GIVEN_LABELS if read.labels is not None else judge,
        left_out={
            "without a label": labels["label"].null_count,
            "without an answer": len(labels) - labels["label"].null_count - len(label),
            "not usable": len(read.quarantined),
            "repeated": read.n_duplicates,
        },
        faults=tuple(f"{fault.row}: {fault.reason}" for fault in read.quarantined[:3]),
        source=path.name,
        source_sha256=read.source_sha256,
        groups=read.questions["group"].filter(labelled).to_pylist(),
        questions=read.questions["question"].filter(labelled).to_pylist(),
        votes=labels["votes"].filter(labelled).to_pylist(),
    )


def _judged(read: ImportedResponses, judge: str) -> pa.Table:
    questions = read.questions.select(["question_id", "question", "references"]).to_pylist()
    lookup = {row["question_id"]: (row["question"], tuple(row["references"] or ())) for row in questions}
    return judge_rows(read.responses, lookup, JUDGES.get(judge)())
