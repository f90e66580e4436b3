"""Small sources of TriviaQA, PopQA and GSM8K in the schema and layout of the real ones."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_EVIDENCE = pa.struct([("title", pa.list_(pa.string())), ("filename", pa.list_(pa.string()))])
TRIVIAQA_SCHEMA = pa.schema(
    [
        ("question", pa.string()),
        ("question_id", pa.string()),
        ("question_source", pa.string()),
        ("entity_pages", _EVIDENCE),
        ("search_results", _EVIDENCE),
        (
            "answer",
            pa.struct(
                [
                    ("aliases", pa.list_(pa.string())),
                    ("normalized_aliases", pa.list_(pa.string())),
                    ("matched_wiki_entity_name", pa.string()),
                    ("normalized_matched_wiki_entity_name", pa.string()),
                    ("normalized_value", pa.string()),
                    ("type", pa.string()),
                    ("value", pa.string()),
                ]
            ),
        ),
    ]
)
POPQA_COLUMNS = [
    "id",
    "subj",
    "prop",
    "obj",
    "subj_id",
    "prop_id",
    "obj_id",
    "s_aliases",
    "o_aliases",
    "s_uri",
    "o_uri",
    "s_wiki_title",
    "o_wiki_title",
    "s_pop",
    "o_pop",
    "question",
    "possible_answers",
]
GSM8K_SCHEMA = pa.schema([("question", pa.string()), ("answer", pa.string())])


def triviaqa_row(
    question_id: str, question: str, value: str | None, aliases: Sequence[str | None] = ()
) -> dict[str, Any]:
    """One row; fields that no loader reads are as empty as in rc.nocontext."""
    answer = {"value": value, "aliases": list(aliases), "normalized_aliases": [], "type": "WikipediaEntity"}
    return {
        "question": question,
        "question_id": question_id,
        "question_source": "http://www.example.org/",
        "entity_pages": {"title": [], "filename": []},
        "search_results": {"title": [], "filename": []},
        "answer": answer,
    }


# Of train, tc_1 stands twice, bt_9 asks tc_2 in another spelling, and tc_7 is also in validation.
TRIVIAQA_TRAIN = [
    triviaqa_row("tc_1", "Which river runs through Cairo?", "Nile", ["The Nile", "Nile", "River Nile"]),
    triviaqa_row("tc_1", "Which river runs through Cairo?", "Nile", ["The Nile", "Nile", "River Nile"]),
    triviaqa_row("tc_2", "Who painted 'Guernica'?", "Picasso", ["Pablo Picasso"]),
    triviaqa_row("bt_9", "Who painted Guernica", "Pablo Picasso"),
    triviaqa_row("tc_7", "What is the largest planet?", "Jupiter"),
    *(triviaqa_row(f"qw_{i}", f"What is {i} plus {i}?", str(2 * i)) for i in range(10, 20)),
]
TRIVIAQA_VALIDATION = [
    triviaqa_row("dp_1", "What is the largest planet", "Jupiter"),
    *(triviaqa_row(f"sf_{i}", f"What is {i} times {i}?", str(i * i)) for i in range(10, 15)),
]


def write_triviaqa(
    folder: Path,
    train: Sequence[dict[str, Any]] = TRIVIAQA_TRAIN,
    validation: Sequence[dict[str, Any]] = TRIVIAQA_VALIDATION,
) -> Path:
    """The Hub's Parquet files of rc.nocontext; train in two files."""
    target = folder / "rc.nocontext"
    target.mkdir(parents=True, exist_ok=True)
    parts = {
        "train-00000-of-00002": train[:5],
        "train-00001-of-00002": train[5:],
        "validation-00000-of-00001": validation,
    }
    for name, rows in parts.items():
        pq.write_table(pa.Table.from_pylist(list(rows), schema=TRIVIAQA_SCHEMA), target / f"{name}.parquet")
    return folder


def popqa_row(i: int, **changes: str) -> dict[str, str]:
    """One row as text; two neighbours share a subject."""
    row = dict.fromkeys(POPQA_COLUMNS, "") | {
        "id": str(4222362 + i),
        "subj": f"Person {i // 2}",
        "prop": "occupation",
        "obj": "politician",
        "subj_id": str(1850297 + i // 2),
        "s_aliases": '["P. \\"Pat\\" Person"]',
        "s_pop": str(142 + i),
        "o_pop": "25692",
        "question": f"What is Person {i // 2}'s occupation, number {i}?",
        "possible_answers": json.dumps(["politician", "political leader", 'so-called "pol"']),
    }
    return row | changes


def write_popqa(folder: Path, rows: Sequence[dict[str, str]] | None = None) -> Path:
    """test.tsv as the Hub has it: tab-separated, quotes doubled inside quotes."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "test.tsv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, POPQA_COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows([popqa_row(i) for i in range(20)] if rows is None else rows)
    return folder


def gsm8k_row(i: int, ending: str | None = None) -> dict[str, Any]:
    """One problem; ``ending`` replaces the mark and the number."""
    last = f"#### {1000 * i:,}" if ending is None else ending
    return {
        "question": f"Ann has {i} boxes of 1,000 nails. How many nails?",
        "answer": f"{i} * 1000.\n{last}",
    }


def write_gsm8k(
    folder: Path, train: Sequence[dict[str, Any]] | None = None, test: Sequence[dict[str, Any]] | None = None
) -> Path:
    """The Hub's Parquet files of the configuration main."""
    target = folder / "main"
    target.mkdir(parents=True, exist_ok=True)
    rows = {
        "train": [gsm8k_row(i) for i in range(1, 13)] if train is None else train,
        "test": [gsm8k_row(i) for i in range(20, 28)] if test is None else test,
    }
    for split, members in rows.items():
        table = pa.Table.from_pylist(list(members), schema=GSM8K_SCHEMA)
        pq.write_table(table, target / f"{split}-00000-of-00001.parquet")
    return folder
