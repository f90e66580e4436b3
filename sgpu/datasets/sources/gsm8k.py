"""GSM8K: grade school word problems whose answer is a number (Cobbe et al., 2021)."""

from __future__ import annotations

from functools import partial

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, Question, Request, Source
from sgpu.datasets.checks import expect_rows, require_root
from sgpu.datasets.options import NoOptions, read_options
from sgpu.datasets.response_rows import RowError
from sgpu.datasets.source_rows import (
    SourceReading,
    SourceRow,
    folder_named,
    parquet_source_rows,
    require_parquet,
    shown,
    text_of,
)
from sgpu.judges.numeric import final_number

NAME = "gsm8k"
LICENCE = "MIT"
CITATION = "K. Cobbe et al. Training verifiers to solve math word problems. arXiv:2110.14168, 2021."
ROWS = {"train": 7_473, "test": 1_319}
MARK = "####"
RAW = "Put the folder main of https://huggingface.co/datasets/openai/gsm8k (Parquet files) into the folder."


def load(request: Request) -> Source:
    """Both pools; the reference is the number after the mark. Raises DataError, UsageError."""
    read_options(NAME, NoOptions, request.options)
    root = folder_named(require_root(NAME, request, RAW), "main")
    reading = SourceReading()
    pools = {}
    for pool, expected in ROWS.items():
        rows = parquet_source_rows(require_parquet(NAME, root, pool, RAW), ["question", "answer"])
        pools[pool], found = reading.questions(rows, partial(_question, pool))
        expect_rows(NAME, pool, found, expected, request)
    return Source(NAME, request.revision, LICENCE, CITATION, pools, tuple(reading.rejected))


def _question(pool: str, number: int, row: SourceRow) -> Question:
    question_id = f"{pool}:{number}"
    text, solution = text_of(row.values, "question"), text_of(row.values, "answer")
    _, mark, last = solution.rpartition(MARK)
    reference = last.strip().replace(",", "")
    if not mark or final_number(reference) is None:
        raise RowError(
            f"answer ends in {shown(solution[-40:])}, without a number after {MARK}",
            f"End the answer with a line such as '{MARK} 72'.",
        )
    return Question(question_id, text, (reference,), group=question_id, all_answers=(solution,))


CARD = DatasetCard(
    name=NAME,
    title="GSM8K",
    load=load,
    licence=LICENCE,
    citation=CITATION,
    prompt="chain-of-thought",
    pools=ROWS,
    hub=(HubFiles("openai/gsm8k", ("main/*.parquet",), "cc7b047b6e5bb11b4f1af84efc572db110a51b3c"),),
    raw=RAW,
    max_tokens=512,
    stop=(),
    embed="final_answer",
    question_tokens=80,
    answer_tokens=180,
    departures=(
        Departure(
            "length of answers",
            "one bound for all data sets is suggested",
            "512 new tokens, no stop sequence",
            "a chain of thought does not fit into a short answer",
        ),
        Departure(
            "what is embedded",
            "not given",
            "the final answer",
            "whole chains look dissimilar even where they agree; `embed: full` takes them as they are",
        ),
        Departure(
            "correctness",
            "an LLM judge",
            "a study may name the judge 'numeric', which compares numbers exactly",
            "numbers need no judge to be compared",
        ),
    ),
)
