"""GSM8K: grade school word problems whose answer is a number (Cobbe et al., 2021)."""

from __future__ import annotations

from functools import partial

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, LoadRequest, Question, Source
from sgpu.datasets.fields import RowError, quote, require_text
from sgpu.datasets.source_rows import DatasetRow, SourceReading, folder_named, parquet_source_rows
from sgpu.judges.numeric import final_number

MARK = "####"


def load_gsm8k(request: LoadRequest) -> Source:
    """Load both pools; the reference is the number after the mark. Raises DataError, UsageError."""
    reading = SourceReading.without_options(CARD, request)
    root = folder_named(reading.root, "main")
    pools = {}
    for pool in CARD.pools:
        rows = parquet_source_rows(reading.parquet_files(root, pool), ["question", "answer"])
        pools[pool] = reading.pool(pool, rows, partial(_question, pool))
    return reading.source(pools)


def _question(pool: str, number: int, row: DatasetRow) -> Question:
    question_id = f"{pool}:{number}"
    text, solution = require_text(row.values, "question"), require_text(row.values, "answer")
    _, mark, last = solution.rpartition(MARK)
    reference = last.strip().replace(",", "")
    if not mark or final_number(reference) is None:
        raise RowError(
            f"answer ends in {quote(solution[-40:])}, without a number after {MARK}",
            f"End the answer with a line such as '{MARK} 72'.",
        )
    return Question(question_id, text, (reference,), group=question_id, all_answers=(solution,))


CARD = DatasetCard(
    name="gsm8k",
    title="GSM8K",
    load=load_gsm8k,
    licence="MIT",
    citation="K. Cobbe et al. Training verifiers to solve math word problems. arXiv:2110.14168, 2021.",
    prompt="chain-of-thought",
    pools={"train": 7_473, "test": 1_319},
    hub=(HubFiles("openai/gsm8k", ("main/*.parquet",), "cc7b047b6e5bb11b4f1af84efc572db110a51b3c"),),
    raw=(
        "Put the folder main of https://huggingface.co/datasets/openai/gsm8k (Parquet files) into the folder."
    ),
    max_tokens=512,
    stop=(),
    embed="final_answer",
    question_tokens=80,
    answer_tokens=180,
    departures=Departure.of("gsm8k"),
)
