"""Response sets to spectra: the pure step beneath the encode stage and beneath scoring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sgpu.encoders.base import Encoder, distinct
from sgpu.errors import DataError
from sgpu.seeds import derived_seed
from sgpu.spectrum import spectrum
from sgpu.storage import tables

# Response sets whose vectors are gathered at a time: 1024 x 20 x 384 float32 is 31 MB.
SETS_AT_A_TIME = 1024


def spectra_of(answers: Sequence[Sequence[str]], encoder: Encoder) -> NDArray[np.float64]:
    """(Q, N) eigenvalues of Q response sets of N answers each; every distinct text is encoded once.

    Raises DataError where the sets are empty or differ in N.
    """
    if not answers:
        return np.empty((0, 0))
    n = len(answers[0])
    return spectra_by_size(answers, encoder, [n])[n]


def spectra_by_size(
    answers: Sequence[Sequence[str]],
    encoder: Encoder,
    sizes: Sequence[int],
    orders: NDArray[np.intp] | None = None,
) -> dict[int, NDArray[np.float64]]:
    """For each size m the (Q, m) eigenvalues of the first m answers; the texts are encoded once for all.

    ``orders`` (Q, N) are those in which the answers of sizes below N are counted, default as they stand.

    Raises DataError where the sets are empty or differ in N, or where a size is not in 1..N.
    """
    if not answers:
        return {size: np.empty((0, size)) for size in sizes}
    n = len(answers[0])
    for row, texts in enumerate(answers):
        if len(texts) != n or n == 0:
            raise DataError(
                f"response set {row} has {len(texts)} answers, the first one {n}: every set needs the same "
                "number, at least 1. Cut longer sets and leave out shorter ones."
            )
    if wrong := [size for size in sizes if not 1 <= size <= n]:
        raise DataError(f"the spectrum of {wrong[0]} answers is asked of sets of {n}; give 1 to {n}")
    texts, places = distinct(text for row in answers for text in row)
    vectors = encoder.encode(texts)
    given = places.reshape(-1, n)
    ordered = given if orders is None else np.take_along_axis(given, orders, axis=1)
    made = {}
    for size in sizes:
        blocks = np.array_split(ordered[:, :size] if size < n else given, -(-len(answers) // SETS_AT_A_TIME))
        made[size] = np.concatenate([spectrum(vectors[block]) for block in blocks])
    return made


def spectra_rows(responses: pa.Table, encoder: Encoder, n: int, prefixes: Sequence[int] = ()) -> pa.Table:
    """The spectra table (`tables.spectra(n)`) of a responses table, row for row, from the first n answers.

    ``prefixes`` are smaller numbers of answers whose spectra are wanted beside that of all n. They are the
    first in an order drawn by the question's id, so that smaller sets lie in larger ones: the order of the
    file may say something, where answers were sorted by likelihood or the first one was not sampled.
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
    ids = [key for key, good in zip(responses["question_id"].to_pylist(), ok, strict=True) if good]
    by_size = spectra_by_size(usable, encoder, [n, *prefixes], drawn_orders(ids, n) if prefixes else None)
    spectra = {size: iter(rows.tolist()) for size, rows in by_size.items()}
    n_distinct = iter([len(set(answers)) for answers in usable])
    columns = {
        "question_id": responses["question_id"],
        "status": ["ok" if problem is None else problem[0] for problem in problems],
        "error": [None if problem is None else problem[1] for problem in problems],
        "encoder_dtype": [encoder.dtype] * len(problems),
        "n": [n if good else None for good in ok],
        "eigenvalues": [next(spectra[n]) if good else None for good in ok],
        "prefixes": [list(prefixes) if good and prefixes else None for good in ok],
        "prefix_eigenvalues": [
            [next(spectra[size]) for size in prefixes] if good and prefixes else None for good in ok
        ],
        "n_distinct": [next(n_distinct) if good else None for good in ok],
    }
    return pa.table(columns, schema=tables.spectra(n).schema)


def drawn_orders(question_ids: Sequence[str], n: int) -> NDArray[np.intp]:
    """(Q, n) permutations of n places, each drawn by the id of its question."""
    orders = [np.random.default_rng(derived_seed("answers", key)).permutation(n) for key in question_ids]
    return np.asarray(orders, dtype=np.intp).reshape(len(orders), n)


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
