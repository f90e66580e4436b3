"""Response sets to spectra: the pure step beneath the encode stage and beneath scoring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sgpu import tables
from sgpu.encoders.base import Encoder, distinct
from sgpu.errors import DataError
from sgpu.spectrum import spectrum

# Response sets whose vectors are gathered at a time: 1024 x 20 x 384 float32 is 31 MB.
SETS_AT_A_TIME = 1024


def spectra_of(answers: Sequence[Sequence[str]], encoder: Encoder) -> NDArray[np.float64]:
    """(Q, N) eigenvalues of Q response sets of N answers each; every distinct text is encoded once.

    Raises DataError where the sets are empty or differ in N.
    """
    if not answers:
        return np.empty((0, 0))
    n = len(answers[0])
    for row, texts in enumerate(answers):
        if len(texts) != n or n == 0:
            raise DataError(
                f"response set {row} has {len(texts)} answers, the first one {n}: every set needs the same "
                "number, at least 1. Cut longer sets and leave out shorter ones."
            )
    texts, places = distinct(text for row in answers for text in row)
    vectors = encoder.encode(texts)
    blocks = np.array_split(places.reshape(-1, n), -(-len(answers) // SETS_AT_A_TIME))
    return np.concatenate([spectrum(vectors[block]) for block in blocks])


def spectra_rows(responses: pa.Table, encoder: Encoder, n: int) -> pa.Table:
    """The spectra table (`tables.spectra(n)`) of a responses table, row for row, from the first n answers.

    A response set that is itself not "ok" is "missing" here; one with fewer than n answers "failed".
    """
    all_answers = responses["answers"].to_pylist()
    problems = [
        _problem(status, error, answers, n)
        for status, error, answers in zip(
            responses["status"].to_pylist(), responses["error"].to_pylist(), all_answers, strict=True
        )
    ]
    ok = [problem is None for problem in problems]
    usable = [answers[:n] for answers, good in zip(all_answers, ok, strict=True) if good]
    eigenvalues = iter(spectra_of(usable, encoder).tolist())
    n_distinct = iter([len(set(answers)) for answers in usable])
    columns = {
        "question_id": responses["question_id"],
        "status": ["ok" if problem is None else problem[0] for problem in problems],
        "error": [None if problem is None else problem[1] for problem in problems],
        "encoder_dtype": [encoder.dtype] * len(problems),
        "n": [n if good else None for good in ok],
        "eigenvalues": [next(eigenvalues) if good else None for good in ok],
        "n_distinct": [next(n_distinct) if good else None for good in ok],
    }
    return pa.table(columns, schema=tables.spectra(n).schema)


def _problem(
    status: str, error: str | None, answers: list[str | None] | None, n: int
) -> tuple[str, str] | None:
    """Why a response set has no spectrum, as (status, error); None where it can have one."""
    if status != "ok":
        return "missing", f"the response set is {status!r}: {error or 'no reason given'}"
    count = len(answers or [])
    if answers is None or count < n:
        return "failed", f"{count} answers, {n} needed; sample more or lower n"
    if None in answers[:n]:
        return "failed", f"answer {answers.index(None)} is null; an empty answer must be an empty string"
    return None
