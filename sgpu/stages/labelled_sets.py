"""One's own labelled response sets, read and split: what a model is fitted to, calibrated and measured on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sgpu.datasets.responses import ImportedResponses, load
from sgpu.errors import DataError, UsageError
from sgpu.judges.base import JUDGES
from sgpu.judges.labels import judge_rows
from sgpu.seeds import order_key

GIVEN = "given"
# Judges that need no model.
OWN_JUDGES = ("alias", "numeric")


@dataclass(frozen=True)
class LabelledSets:
    """Q response sets that have a label (1 right, 0 wrong): their ids, answers, ``label`` (Q,) and ``split``.

    ``split`` (Q,) is "train", "validation" or "test". ``n`` is the most common number of answers, or the one
    that was asked for. ``judge`` says where labels come from, "given" for those of the file. ``left_out``
    counts the rows that are not here, by reason; ``faults`` are the first few that could not be read. Rows of
    one of the ``groups`` (Q,) depend on each other; a row without one is a group of its own.
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

    def part(self, split: str) -> tuple[list[list[str]], NDArray[np.int64]]:
        """The answers and labels of one side of the split."""
        places = np.flatnonzero(self.split == split)
        return [self.answers[place] for place in places], self.label[places]

    def independent(self, split: str, seed: int) -> NDArray[np.intp]:
        """Places within `part` of rows that do not depend on each other: one of each group, by the seed.

        Groups that a file has put in train as well are left out.
        """
        places = np.flatnonzero(self.split == split)
        trained = (
            set() if split == "train" else {self.groups[i] for i in np.flatnonzero(self.split == "train")}
        )
        drawn: dict[str, int] = {}
        for row in sorted(
            range(len(places)), key=lambda row: order_key("group", seed, self.ids[places[row]])
        ):
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
    if judge not in OWN_JUDGES:
        raise UsageError(
            f"judge {judge!r} cannot label a file; give {' or '.join(OWN_JUDGES)}, or a column `label`"
        )
    if test_share <= 0 or calibration_share < 0 or test_share + calibration_share >= 1:
        raise UsageError(
            f"the test share is {test_share} and the calibration share {calibration_share}; the first is "
            "above 0, the second 0 or more, and together they are below 1, to leave rows for training"
        )
    of_rest = calibration_share / (1 - test_share)
    read = load(path, n, seed=seed, test_share=test_share, validation_share=of_rest, any_count=True)
    labels = read.labels if read.labels is not None else _judged(read, judge)
    label = labels["label"].to_pylist()
    known = [place for place, value in enumerate(label) if value is not None]
    left_out = {
        "without a label": len(label) - len(known),
        "not usable": len(read.quarantined),
        "repeated": read.n_duplicates,
    }
    if not known:
        raise DataError(
            f"{path}: none of {len(label)} rows has a label, and no references to make one of. "
            "Give a column `label` (1 right, 0 wrong) or `references`."
        )
    return LabelledSets(
        ids=_of(read.responses["question_id"], known),
        answers=_of(read.responses["answers"], known),
        label=np.array([label[place] for place in known], dtype=np.int64),
        split=np.array(_of(read.questions["split"], known)),
        n=read.n,
        judge=GIVEN if read.labels is not None else judge,
        left_out=left_out,
        faults=tuple(f"row {one.row}: {one.reason}" for one in read.quarantined[:3]),
        source=path.name,
        source_sha256=read.source_sha256,
        groups=_of(read.questions["group"], known),
    )


def _judged(read: ImportedResponses, judge: str) -> pa.Table:
    columns = (read.questions[name].to_pylist() for name in ("question_id", "question", "references"))
    lookup = {
        key: (question, tuple(accepted or ())) for key, question, accepted in zip(*columns, strict=True)
    }
    return judge_rows(read.responses, lookup, JUDGES.get(judge)())


def _of(column: pa.ChunkedArray, places: Sequence[int]) -> list[Any]:
    return column.take(pa.array(places, pa.int64())).to_pylist()
