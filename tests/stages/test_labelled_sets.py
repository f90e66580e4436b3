"""Reading one's own labelled sets: labels of the file or of a judge, and nothing lost without a count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgpu.errors import DataError, UsageError
from sgpu.judges.base import JUDGES, Item, Vote
from sgpu.stages.labelled_sets import read_labelled


def row(i: int, **changes: Any) -> dict[str, Any]:
    return {
        "question_id": f"q{i}",
        "question": f"Question {i}?",
        "answers": ["Lima", "Lima", "Cusco"],
        **changes,
    }


def written(folder: Path, rows: list[Any]) -> Path:
    path = folder / "own.jsonl"
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))
    return path


def test_labels_of_the_file_are_used_and_rows_without_one_are_counted(tmp_path: Path) -> None:
    rows = [row(i, label=i % 2, references=["Lima"]) for i in range(20)] + [row(20), row(21, label=None)]
    sets = read_labelled(written(tmp_path, rows))
    assert (sets.judge, sets.left_out["without a label"], len(sets.ids)) == ("given", 2, 20)
    assert all(label == int(key[1:]) % 2 for key, label in zip(sets.ids, sets.label, strict=True))


def test_without_labels_the_majority_of_answers_that_match_decides(tmp_path: Path) -> None:
    rows = [row(0, references=["Lima"]), row(1, references=["Cusco"]), row(2)]
    sets = read_labelled(written(tmp_path, rows), test_share=0.3)
    assert dict(zip(sets.ids, sets.label.tolist(), strict=True)) == {"q0": 1, "q1": 0}
    assert (sets.judge, sets.left_out["without a label"]) == ("alias", 1)


def test_questions_and_votes_of_a_judge_stand_beside_the_answers(tmp_path: Path) -> None:
    rows = [row(0, references=["Lima"]), row(1, references=["Cusco"])]
    sets = read_labelled(written(tmp_path, rows), test_share=0.5)
    (key,) = (key for key, split in zip(sets.ids, sets.split, strict=True) if split == "test")
    assert sets.questions_of("test") == [f"Question {key[1:]}?"]
    assert sets.votes_of("test") == [[1, 1, 0] if key == "q0" else [0, 0, 1]]
    given = read_labelled(written(tmp_path, [row(0, label=1), row(1, label=0)]), test_share=0.5)
    assert given.votes_of("test") == [None]


class CapitalsJudge:
    """A judge that our package does not know: right is what is written in capitals."""

    name = "capitals"

    def judge(self, items: Sequence[Item]) -> list[Vote]:
        return [Vote(item.answer.isupper()) for item in items]


def test_any_registered_judge_that_asks_no_model_labels_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(0, references=["Lima"]), row(1, references=["x"], answers=["LIMA", "LIMA", "Cusco"])]
    with pytest.raises(UsageError, match="judge 'capitals' cannot label a file; give alias or numeric,"):
        read_labelled(written(tmp_path, rows), judge="capitals")
    monkeypatch.setitem(JUDGES._entries, "capitals", f"{__name__}:CapitalsJudge")
    sets = read_labelled(written(tmp_path, rows), judge="capitals", test_share=0.3)
    assert dict(zip(sets.ids, sets.label.tolist(), strict=True)) == {"q0": 0, "q1": 1}


def test_what_cannot_be_read_is_counted_and_told(tmp_path: Path) -> None:
    rows = [
        *[row(i, label=1) for i in range(4)],
        row(0, label=1),
        "no json",
        row(9, answers=["one"], label=1),
    ]
    sets = read_labelled(written(tmp_path, rows))
    left_out = {"without a label": 0, "without an answer": 0, "not usable": 2, "repeated": 1}
    assert sets.left_out == left_out
    assert [fault.partition(":")[0] for fault in sets.faults] == ["line 6", "line 7"]


def test_sets_without_an_answer_train_nothing_and_are_counted(tmp_path: Path) -> None:
    rows = [row(i, label=i % 2) for i in range(8)] + [row(9, label=0, answers=["I don't know."] * 3)]
    sets = read_labelled(written(tmp_path, rows))
    assert (sets.left_out["without an answer"], "q9" in sets.ids) == (1, False)


def test_sets_of_any_number_of_answers_are_kept(tmp_path: Path) -> None:
    rows = [row(i, label=1) for i in range(6)] + [row(i, answers=["a"] * i, label=0) for i in (7, 8)]
    sets = read_labelled(written(tmp_path, rows))
    assert sets.counts == {3: 6, 7: 1, 8: 1}
    assert sets.n == 3


def test_shares_are_of_all_rows_and_the_sides_do_not_touch(tmp_path: Path) -> None:
    rows = [row(i, label=i % 2) for i in range(1000)]
    sets = read_labelled(written(tmp_path, rows), test_share=0.2, calibration_share=0.3)
    counts = {side: int((sets.split == side).sum()) for side in ("train", "validation", "test")}
    assert [counts[side] for side in counts] == pytest.approx([500, 300, 200], abs=1)
    assert len(set(sets.ids)) == 1000


def test_rows_of_one_group_stay_on_one_side(tmp_path: Path) -> None:
    rows = [row(i, label=i % 2, group=f"g{i // 5}") for i in range(200)]
    sets = read_labelled(written(tmp_path, rows), calibration_share=0.3)
    sides: dict[int, set[str]] = {}
    for key, side in zip(sets.ids, sets.split.tolist(), strict=True):
        sides.setdefault(int(key[1:]) // 5, set()).add(side)
    assert all(len(found) == 1 for found in sides.values())


def test_independent_rows_are_one_of_each_group_drawn_by_the_seed(tmp_path: Path) -> None:
    rows = [row(i, label=i % 2, group=f"g{i // 5}") for i in range(200)] + [
        row(i, label=1) for i in range(200, 220)
    ]
    sets = read_labelled(written(tmp_path, rows), calibration_share=0.4)
    groups = [sets.groups[place] for place in np.flatnonzero(sets.split == "validation")]
    drawn = [sets.independent("validation", seed).tolist() for seed in (0, 0, 1)]
    for places in drawn:
        assert sorted(groups[place] for place in places) == sorted(set(groups))
    assert drawn[0] == drawn[1] != drawn[2]


def test_rows_without_a_group_are_all_independent(tmp_path: Path) -> None:
    sets = read_labelled(written(tmp_path, [row(i, label=1) for i in range(100)]), calibration_share=0.3)
    assert sets.independent("validation", 0).tolist() == list(range(len(sets.part("validation")[0])))


def test_groups_that_the_file_trains_on_are_not_independent(tmp_path: Path) -> None:
    sides = {"a": "train", "b": "validation", "c": "test"}
    rows = [row(i, label=1, split=side, group=key) for i, (key, side) in enumerate(sides.items())]
    rows += [row(9, label=1, split="validation", group="a")]
    sets = read_labelled(written(tmp_path, rows))
    [place] = sets.independent("validation", 0)
    assert (
        sets.part("validation")[0][place]
        and sets.groups[np.flatnonzero(sets.split == "validation")[place]] == "b"
    )


def test_the_split_of_the_file_is_kept(tmp_path: Path) -> None:
    split = ("train", "validation", "test")
    sets = read_labelled(written(tmp_path, [row(i, label=1, split=split[i % 3]) for i in range(9)]))
    assert all(side == split[int(key[1:]) % 3] for key, side in zip(sets.ids, sets.split, strict=True))


def test_without_a_share_nothing_is_kept_for_calibration(tmp_path: Path) -> None:
    sets = read_labelled(written(tmp_path, [row(i, label=i % 2) for i in range(50)]))
    assert set(sets.split.tolist()) == {"train", "test"}


def test_nothing_labelled_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Give a column `label`"):
        read_labelled(written(tmp_path, [row(0), row(1)]))


@pytest.mark.parametrize(
    "settings",
    [{"judge": "llm"}, {"test_share": 0.0}, {"test_share": 0.7, "calibration_share": 0.3}, {"n": 1}],
)
def test_settings_out_of_range_are_usage_errors(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        read_labelled(written(tmp_path, [row(0, label=1)]), **settings)
