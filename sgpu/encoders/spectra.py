"""Response sets to spectra: the pure step beneath the encode stage and beneath scoring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sgpu.encoders.base import Encoder, distinct
from sgpu.errors import DataError
from sgpu.final_answer import final_answer
from sgpu.hashing import derived_seed
from sgpu.spectrum import spectrum
from sgpu.storage import tables

Embed = Literal["full", "final_answer"]


def embedded_texts(answers: Sequence[str | None], embed: Embed) -> list[str | None]:
    """What of N answers is embedded and compared: all of it, or the final answer of a chain of thought.

    Where no final answer is found in a text, all of it. A missing one stays None.

    Whole chains of thought are worded differently even where they come to the same result, so that their
    embeddings say little of whether they agree.
    """
    if embed == "full":
        return list(answers)
    return [None if text is None else final_answer(text) or text for text in answers]


def with_embedded_texts(responses: pa.Table, embed: Embed) -> pa.Table:
    """The responses with these texts in the place of the answers."""
    if embed == "full":
        return responses
    column = responses.schema.get_field_index("answers")
    texts = [None if row is None else embedded_texts(row, embed) for row in responses["answers"].to_pylist()]
    field = responses.schema.field(column)
    return responses.set_column(column, field, pa.array(texts, field.type))


# Vectors gathered at a time: 20,480 x 384 float32 is 31 MB.
VECTORS_AT_A_TIME = 20_480


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
    as_read = places.reshape(-1, n)
    ordered = as_read if orders is None else np.take_along_axis(as_read, orders, axis=1)
    return {size: _spectra(vectors, ordered[:, :size] if size < n else as_read) for size in sizes}


def spectra_rows(responses: pa.Table, encoder: Encoder, n: int, prefixes: Sequence[int] = ()) -> pa.Table:
    """Return the `tables.spectra_table(n)` of a responses table, row for row, from the first n answers.

    ``prefixes`` are smaller numbers of answers whose spectra are wanted beside that of all n. They are the
    first in an order drawn by the question's id, so that smaller sets lie in larger ones: the order of the
    file may say something, where answers were sorted by likelihood or the first one was not sampled.
    A response set that is itself not "ok" is "missing" here; one with fewer than n answers "failed".
    """
    rows = responses.select(["question_id", "status", "error", "answers"]).to_pylist()
    problems = [_problem(row["status"], row["error"], row["answers"], n) for row in rows]
    usable = [row for row, problem in zip(rows, problems, strict=True) if problem is None]
    answers = [row["answers"][:n] for row in usable]
    orders = drawn_orders([row["question_id"] for row in usable], n) if prefixes else None
    spectra = spectra_by_size(answers, encoder, [n, *prefixes], orders)
    computed = iter(
        {
            "status": "ok",
            "n": n,
            "eigenvalues": spectra[n][index],
            "prefixes": list(prefixes) or None,
            "prefix_eigenvalues": [spectra[size][index] for size in prefixes] or None,
            "n_distinct": len(set(texts)),
        }
        for index, texts in enumerate(answers)
    )
    for row, problem in zip(rows, problems, strict=True):
        values = {"status": problem[0], "error": problem[1]} if problem else next(computed)
        row |= {"encoder_dtype": encoder.dtype, "error": None} | values
    return pa.Table.from_pylist(rows, schema=tables.spectra_table(n).schema)


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


class SizedSpectra(NamedTuple):
    """``spectra`` (R, n) of the sets at the places ``rows`` (R,), ascending."""

    rows: NDArray[np.intp]
    spectra: NDArray[np.float64]


def spectra_by_set_size(sets: Sequence[Sequence[str]], encoder: Encoder) -> dict[int, SizedSpectra]:
    """The spectra of Q sets of texts, by the number of texts n, ascending.

    Sets are read in the order given, so the same sets make the same batches for the encoder, and the same
    numbers to the last bit. Texts longer than the encoder reads are cut by its tokenizer. Raises DataError
    for an empty set.
    """
    sizes = np.array([len(texts) for texts in sets], dtype=np.intp)
    if (sizes == 0).any():
        raise DataError(f"response set {int((sizes == 0).argmax())} is empty; leave it out")
    if not len(sets):
        return {}
    texts, places = distinct(text for answer_set in sets for text in answer_set)
    vectors = encoder.encode(texts)
    starts = np.cumsum(sizes) - sizes
    by_size = {}
    for n in np.unique(sizes):
        rows = np.flatnonzero(sizes == n)
        read = places[starts[rows][:, None] + np.arange(n)]
        by_size[int(n)] = SizedSpectra(rows, _spectra(vectors, read))
    return by_size


def _spectra(vectors: NDArray[np.float32], places: NDArray[np.intp]) -> NDArray[np.float64]:
    """(R, n) spectra of the vectors at (R, n) places, of so many rows at a time that they stay few."""
    step = max(1, VECTORS_AT_A_TIME // places.shape[1])
    blocks = [places[start : start + step] for start in range(0, len(places), step)]
    return np.concatenate([spectrum(vectors[block]) for block in blocks])
