"""Importing response files: what is accepted, what is quarantined, what stops the import."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpu.datasets.responses import ImportedResponses, load_responses
from sgpu.errors import DataError, UsageError
from sgpu.storage.tables import LABELS, QUESTIONS, RESPONSES


def row(i: int, **changes: Any) -> dict[str, Any]:
    return {"question_id": f"q{i}", "question": f"Question {i}?", "answers": ["a", "b", "a"], **changes}


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return path


def imported(tmp_path: Path, rows: list[Any], **settings: Any) -> ImportedResponses:
    return load_responses(jsonl(tmp_path / "r.jsonl", rows), **settings)


def test_tables_have_the_declared_schemas_and_one_order(tmp_path: Path) -> None:
    result = imported(tmp_path, [row(i, label=i % 2) for i in range(20)])
    assert result.questions.schema.equals(QUESTIONS.schema)
    assert result.responses.schema.equals(RESPONSES.schema)
    assert result.labels is not None and result.labels.schema.equals(LABELS.schema)
    ids = result.questions["question_id"].to_pylist()
    assert ids == result.responses["question_id"].to_pylist() == result.labels["question_id"].to_pylist()
    assert dict(zip(ids, result.labels["label"].to_pylist(), strict=True))["q7"] == 1


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst", ".parquet"])
def test_every_kind_of_file_gives_the_same_tables(tmp_path: Path, suffix: str) -> None:
    rows = [
        row(i, label=bool(i % 2), references=["a"], token_logprobs=[[-0.5], [], [-1.0, -2.0]])
        for i in range(9)
    ]
    text = "".join(json.dumps(one) + "\n" for one in rows).encode()
    path = tmp_path / f"r{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif suffix.endswith(".zst"):
        with pa.output_stream(path, compression="zstd") as stream:
            stream.write(text)
    else:
        path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    plain, result = load_responses(jsonl(tmp_path / "plain.jsonl", rows)), load_responses(path)
    assert result.questions.equals(plain.questions)
    assert result.responses.equals(plain.responses)
    assert result.labels is not None and result.labels.equals(plain.labels)


BAD_ROWS = {
    "no answers": ({"answers": []}, "0 entries, below 2"),
    "one answer": ({"answers": ["a"]}, "1 entries, below 2"),
    "null answer": ({"answers": ["a", None, "b"]}, r"answers\[1\] is None"),
    "number as answer": ({"answers": ["a", 3, "b"]}, r"answers\[1\] is 3"),
    "text for answers": ({"answers": "abc"}, "answers is 'abc', not a list"),
    "blank question": ({"question": "  "}, "question is blank"),
    "no id": ({"question_id": None}, "question_id is None"),
    "label 2": ({"label": 2}, "label is 2, outside 0, 1"),
    "label text": ({"label": "1"}, "label is '1'"),
    "unknown split": ({"split": "dev"}, "split is 'dev'"),
    "logprobs of another length": ({"token_logprobs": [[-1.0]]}, "1 lists for 3 answers"),
    "flat logprobs": ({"token_logprobs": [-1.0, -1.0, -1.0]}, "not a list of lists"),
    "positive logprob": ({"token_logprobs": [[-1.0], [0.5], [-1.0]]}, r"token_logprobs\[1\]\[0\] is 0.5"),
    "infinite logprob": ({"token_logprobs": [[-1.0], [float("-inf")], [-1.0]]}, "is -inf"),
    "NaN logprob": ({"token_logprobs": [[-1.0], [float("nan")], [-1.0]]}, "is nan"),
    "huge answer": ({"answers": ["a", "x" * 100_001, "b"]}, "100001 characters, above 100000"),
    "half a surrogate pair": ({"answers": ["a", "\ud800", "b"]}, "surrogate"),
}


@pytest.mark.parametrize(("changes", "reason"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_quarantined_and_the_others_go_on(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    result = imported(tmp_path, [row(0), row(1, **changes), row(2)])
    assert sorted(result.questions["question_id"].to_pylist()) == ["q0", "q2"]
    (rejected,) = result.quarantined
    assert rejected.row == "line 2"
    assert rejected.file.endswith("r.jsonl") and rejected.remedy
    assert re.search(reason, rejected.reason)


@pytest.mark.parametrize(
    "line",
    ['{"question_id": "q1"', "[1, 2]", "[" * 100_000, json.dumps(row(1))[:-1] + ', "answers": ["c", "c"]}'],
    ids=["cut", "a list", "deep", "a key twice"],
)
def test_a_line_that_is_not_a_json_object_is_quarantined(tmp_path: Path, line: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f"{json.dumps(row(0))}\n\n{line}\n{json.dumps(row(2))}\n")
    result = load_responses(path)
    assert result.questions.num_rows == 2
    assert [r.row for r in result.quarantined] == ["line 3"]


def test_identical_duplicates_are_dropped_and_counted(tmp_path: Path) -> None:
    result = imported(tmp_path, [row(0), row(1), row(0)])
    assert (result.questions.num_rows, result.n_duplicates, result.quarantined) == (2, 1, [])


def test_an_id_with_other_content_is_quarantined(tmp_path: Path) -> None:
    result = imported(tmp_path, [row(0), row(1), row(0, answers=["c", "d", "e"])])
    assert [r.row for r in result.quarantined] == ["line 3"]
    assert "already used by line 1" in result.quarantined[0].reason


def test_n_is_the_most_common_count_and_longer_rows_use_their_first_answers(tmp_path: Path) -> None:
    longer = row(2, answers=["1", "2", "3", "4"], token_logprobs=[[-1], [-2], [-3], [-4]])
    result = imported(tmp_path, [row(0), row(1), longer, row(3, answers=["a", "b"])])
    assert result.n == 3
    kept = {r["question_id"]: r for r in result.responses.to_pylist()}
    assert kept["q2"]["answers"] == ["1", "2", "3"]
    assert kept["q2"]["token_logprobs"] == [[-1], [-2], [-3]]
    assert kept["q2"]["n_tokens"] == [1, 1, 1]
    assert [(r.row, r.reason) for r in result.quarantined] == [
        ("line 4", "answers has 2 entries, below the 3 of this cell")
    ]


def test_a_given_n_wins_over_the_most_common_count(tmp_path: Path) -> None:
    result = imported(tmp_path, [row(0), row(1), row(2, answers=["a", "b"])], n=2)
    assert result.n == 2
    assert {len(answers) for answers in result.responses["answers"].to_pylist()} == {2}


def test_without_labels_there_is_no_labels_table(tmp_path: Path) -> None:
    result = imported(tmp_path, [row(0, references=["a"]), row(1)])
    assert result.labels is None
    assert result.n_unlabelled == 1  # q1 has nothing to judge against


def test_a_row_without_label_among_labelled_ones_is_missing_and_not_wrong(tmp_path: Path) -> None:
    result = imported(tmp_path, [row(0, label=0), row(1, label=None), row(2, label=True)])
    assert result.labels is not None
    rows = {r["question_id"]: (r["status"], r["label"]) for r in result.labels.to_pylist()}
    assert rows == {"q0": ("ok", 0), "q1": ("missing", None), "q2": ("ok", 1)}
    assert result.n_unlabelled == 1


def test_text_with_nul_and_line_separators_comes_through_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    answers = ["a\x00b", "c\u2028d", "\n", ""]
    path.write_text(json.dumps(row(0, answers=answers), ensure_ascii=False) + "\n", encoding="utf-8")
    assert load_responses(path).responses["answers"].to_pylist() == [answers]


def test_the_hashed_split_does_not_depend_on_row_order(tmp_path: Path) -> None:
    rows = [row(i, label=i % 2) for i in range(50)]
    forward, backward = imported(tmp_path, rows), imported(tmp_path, rows[::-1])
    assert forward.questions.equals(backward.questions)
    assert forward.split.granted == {"train": 27, "validation": 3, "test": 20}


def test_no_row_is_lost_where_the_test_share_would_cut_a_group(tmp_path: Path) -> None:
    result = imported(tmp_path, [row(i, group=f"g{i % 3}", label=i % 2) for i in range(30)])
    sides: dict[str, set[str]] = {"train": set(), "validation": set(), "test": set()}
    for one in result.questions.to_pylist():
        sides[one["split"]].add(one["group"])
    assert result.questions.num_rows == 30
    assert not sides["test"] & (sides["train"] | sides["validation"])


def test_a_given_split_is_kept_and_validation_is_cut_from_train(tmp_path: Path) -> None:
    result = imported(tmp_path, [row(i, split="test" if i < 5 else "train") for i in range(25)])
    sides = {r["question_id"]: r["split"] for r in result.questions.to_pylist()}
    assert {i for i in sides if sides[i] == "test"} == {f"q{i}" for i in range(5)}
    assert result.split.granted == {"train": 18, "validation": 2, "test": 5}


def test_a_row_without_split_among_rows_with_one_is_quarantined(tmp_path: Path) -> None:
    result = imported(tmp_path, [row(0, split="train"), row(1), row(2, split="test")])
    assert [r.row for r in result.quarantined] == ["line 2"]


def test_a_group_on_both_sides_of_a_given_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="1 groups stand in train and in test, the first 'g'"):
        imported(tmp_path, [row(0, split="train", group="g"), row(1, split="test", group="g")])


def test_unknown_columns_are_named(tmp_path: Path) -> None:
    assert imported(tmp_path, [row(0, refernces=["a"])]).unused_columns == ("refernces",)


def test_invalid_utf8_is_reported_with_byte_offset_and_line(tmp_path: Path) -> None:
    first = (json.dumps(row(0)) + "\n").encode()
    path = tmp_path / "r.jsonl"
    path.write_bytes(first + b'{"question_id": "\xff"}\n')
    with pytest.raises(DataError, match=rf"0xff at byte offset {len(first) + 17}, line 2"):
        load_responses(path)


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_the_conversion_that_a_message_advises_gives_the_rows(tmp_path: Path, suffix: str) -> None:
    path, rows = tmp_path / f"r{suffix}", [row(i) for i in range(3)]
    if suffix == ".csv":
        flat = [(r["question_id"], r["question"], answer) for r in rows for answer in r["answers"]]
        pl.DataFrame(flat, ["question_id", "question", "answer"], orient="row").write_csv(path)
    else:
        path.write_text(json.dumps(rows))
    with pytest.raises(DataError) as told:
        load_responses(path)
    code = "import polars; polars" + str(told.value).partition(": polars")[2]
    subprocess.run([sys.executable, "-c", code], check=True)
    assert load_responses(tmp_path / "r.jsonl").responses["answers"].to_pylist() == [
        r["answers"] for r in rows
    ]


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(row(0)) + "\n", encoding="utf-8-sig")
    assert load_responses(path).questions.num_rows == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.jsonl", None, "no such file"),
        ("r.jsonl", b"", "the file is empty"),
        ("r.jsonl", b"\n\n", "has no rows"),
        ("r.csv", b"a,b\n", r"Give JSON Lines or Parquet: a name that ends with \.jsonl"),
        ("r.jsonl", b'{"question_id": "a", "question": "b?"}\n', "has no column 'answers'"),
        ("r.jsonl.gz", gzip.compress(json.dumps(row(0)).encode(), mtime=0)[:-12], "cut short"),
        ("r.jsonl.gz", b"not gzip", "cannot be read"),
        ("r.jsonl.zst", b"not zstd", "cannot be read"),
        ("r.parquet", b"not parquet", "cannot be read as Parquet"),
        ("r.jsonl", b"nonsense\n", "none of 1 rows can be used; line 1: the line is not JSON"),
    ],
)
def test_an_unusable_file_stops_with_its_reason(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_responses(path)


@pytest.mark.parametrize("settings", [{"n": 1}, {"test_share": 1.5}, {"validation_share": 1.0}])
def test_settings_out_of_range_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        imported(tmp_path, [row(i) for i in range(5)], **settings)


def test_with_any_count_every_row_keeps_its_answers(tmp_path: Path) -> None:
    rows = [row(i, label=1) for i in range(5)] + [row(9, answers=["a", "b"]), row(8, answers=list("abcd"))]
    result = imported(tmp_path, rows, any_count=True)
    kept = dict(
        zip(*(result.responses[name].to_pylist() for name in ("question_id", "answers")), strict=True)
    )
    assert (kept["q9"], kept["q8"]) == (["a", "b"], list("abcd"))
    assert (result.n, result.quarantined) == (3, [])
    assert imported(tmp_path, rows, any_count=True, n=2).n == 2


def test_with_any_count_a_row_without_a_split_is_still_quarantined(tmp_path: Path) -> None:
    rows = [row(0, split="train"), row(1, split="test"), row(2)]
    result = imported(tmp_path, rows, any_count=True)
    assert [rejected.row for rejected in result.quarantined] == ["line 3"]
