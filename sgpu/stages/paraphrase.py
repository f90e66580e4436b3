"""Paraphrase stage: a cell's own model words given answers in different ways, for the embedding study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from sgpu.runtime.stage import Stage
from sgpu.stages.run import Run
from sgpu.stages.sample import as_sampling, sampling_stage
from sgpu.storage.store import Published, fingerprint
from sgpu.storage.tables import PARAPHRASES, STATEMENTS
from sgpu.study.benchmark import Cell

N_SAMPLED, MAX_TOKENS = 30, 48  # per answer, so that ten different ones may be among them
REQUEST = 'The answer to the question "{question}" is "{answer}". Say this in one short sentence of your own.'
Statement = tuple[str, str]  # a question and an answer to it


def wording_stage(run: Run, cell: Cell, statements: Sequence[Statement]) -> Stage:
    """Return the stage in which the cell's model words each statement; rows as in `responses`."""
    sampling = as_sampling(run.study.sampling_of(cell))
    sampling = replace(sampling, n=N_SAMPLED, max_tokens=MAX_TOKENS, stop=("\n",))
    requests, name = _requests(run, cell, statements), PARAPHRASES.name
    return sampling_stage(run, cell, requests, sampling, "{question}", "word", PARAPHRASES, name)


def wordings(published: Published, statements: Sequence[Statement]) -> Mapping[Statement, list[str]]:
    """Return the different texts for each statement, in the order in which they were sampled."""
    rows = published.read(["question_id", "answers"]).to_pylist()
    sampled = {row["question_id"]: row["answers"] or [] for row in rows}
    return {statement: _different(sampled.get(str(i), [])) for i, statement in enumerate(statements)}


def _different(texts: Sequence[str | None]) -> list[str]:
    """Return the texts that are not blank, the first of those that differ only in case."""
    first: dict[str, str] = {}
    for text in texts:
        if text and text.strip():
            first.setdefault(text.casefold(), text)
    return list(first.values())


def _requests(run: Run, cell: Cell, statements: Sequence[Statement]) -> Published:
    key = fingerprint({"statements": list(map(list, statements)), "request": REQUEST})
    if current := run.store.unchanged(STATEMENTS.name, cell.partition(), key):
        return current
    rows = [
        {"question_id": str(i), "question": REQUEST.format(question=question, answer=answer)}
        for i, (question, answer) in enumerate(statements)
    ]
    table = pa.Table.from_pylist(rows, schema=STATEMENTS.schema)
    return run.store.write(STATEMENTS, cell.partition(), table, key, {"statements": len(rows)})
