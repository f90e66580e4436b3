"""TriviaQA: trivia questions with aliases of their answers (Joshi et al., ACL 2017).

The configuration without evidence texts (rc.nocontext). The same question stands there once for each of its
evidence sources, so repeated questions are taken once, and those of the test pool are taken out of train.
"""

from __future__ import annotations

from collections.abc import Iterable

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, LoadRequest, Question, Source
from sgpu.datasets.fields import RowError, list_of, quote, references_of, require_text
from sgpu.datasets.source_rows import DatasetRow, SourceReading, folder_named, parquet_source_rows
from sgpu.words import words

CONFIG = "rc.nocontext"
SPLITS = {"train": "train", "test": "validation"}
UNKNOWN = "<unk>"  # what rows without an answer hold


def load_triviaqa(request: LoadRequest) -> Source:
    """Load both pools without repeated questions; ``notes`` say how many were taken out.

    Of rows with one question_id the first stays, of questions with one normalised text the one with the
    smallest id. Where train and test share a question, test keeps it. Raises DataError, UsageError.
    """
    reading = SourceReading.without_options(CARD, request)
    root = folder_named(reading.root, CONFIG)
    pools, notes = {}, []
    for pool, split in SPLITS.items():
        rows = parquet_source_rows(reading.parquet_files(root, split), ["question", "question_id", "answer"])
        questions = reading.pool(pool, rows, _question, name=split, unique_ids=False)
        pools[pool] = _once_each(questions)
        notes.append(
            f"{pool}: {len(questions) - len(pools[pool])} rows repeat a question and are taken once."
        )
    ids, texts = {q.question_id for q in pools["test"]}, {words(q.text) for q in pools["test"]}
    train = [q for q in pools["train"] if q.question_id not in ids and words(q.text) not in texts]
    notes.append(f"train: {len(pools['train']) - len(train)} questions are in test too and stay there.")
    pools["train"] = train
    return reading.source(pools, notes)


def _question(_: int, row: DatasetRow) -> Question:
    question_id, text = require_text(row.values, "question_id"), require_text(row.values, "question")
    answer = row.values.get("answer")
    if not isinstance(answer, dict):
        raise RowError(
            f"answer is {quote(answer)}, not a struct", "Give answer its fields value and aliases."
        )
    value = require_text(answer, "value")
    if value == UNKNOWN:
        raise RowError(f"the answer is {UNKNOWN}", "Use a split whose answers are known.")
    references = references_of([value, *list_of(answer.get("aliases"), "aliases")], "aliases")
    return Question(question_id, text, references, group=question_id)


def _once_each(questions: Iterable[Question]) -> list[Question]:
    by_id: dict[str, Question] = {}
    for question in questions:
        by_id.setdefault(question.question_id, question)
    by_text: dict[tuple[str, ...], str] = {}
    for question_id in sorted(by_id):
        by_text.setdefault(words(by_id[question_id].text), question_id)
    ids = set(by_text.values())
    return [question for question_id, question in by_id.items() if question_id in ids]


CARD = DatasetCard(
    name="triviaqa",
    title="TriviaQA",
    load=load_triviaqa,
    licence="unknown (data set card)",
    citation=(
        "M. Joshi et al. TriviaQA: a large scale distantly supervised challenge dataset for reading "
        "comprehension. ACL 2017."
    ),
    prompt="text-qa",
    pools={"train": 138_384, "test": 17_944},
    paper=(10_000, 1_000),
    hub=(
        HubFiles(
            "mandarjoshi/trivia_qa",
            (f"{CONFIG}/train-*.parquet", f"{CONFIG}/validation-*.parquet"),
            "0f7faf33a3908546c6fd5b73a660e0f8ff173c2f",
        ),
    ),
    raw=(
        f"Put the Parquet files of the folder {CONFIG} in "
        "https://huggingface.co/datasets/mandarjoshi/trivia_qa into the folder."
    ),
    question_tokens=35,
    answer_tokens=8,
    departures=Departure.of("triviaqa"),
)
