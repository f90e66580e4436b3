"""Response sets to spectra: the pure step beneath the encode stage and beneath scoring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sgpu.encoders.base import Encoder, distinct
from sgpu.errors import DataError
from sgpu.final_answer import final_answer
from sgpu.hashing import derived_seed
from sgpu.spectrum import condense, gram, spectrum
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


@dataclass(frozen=True)
class EmbeddedSets:
    """Q sets of N texts: ``vectors`` of their different texts, ``places`` (Q, N) which of them a set has."""

    vectors: NDArray[np.float32]
    places: NDArray[np.intp]

    @classmethod
    def of(cls, sets: Sequence[Sequence[str]], n: int, encoder: Encoder) -> EmbeddedSets:
        """Embed sets of ``n`` texts each, every different text once."""
        texts, places = distinct(text for row in sets for text in row)
        vectors = encoder.encode(texts) if texts else np.empty((0, 0), np.float32)
        return cls(vectors, places.reshape(-1, n))

    def drawn(self, orders: NDArray[np.intp], size: int) -> EmbeddedSets:
        """Return the first ``size`` texts of each set in an order of its own, ``orders`` (Q, N)."""
        return replace(self, places=np.take_along_axis(self.places, orders, axis=1)[:, :size])

    def spectra(self) -> NDArray[np.float64]:
        """Return the (Q, N) eigenvalues."""
        blocks = [spectrum(self.vectors[block]) for block in self._blocks()]
        return np.concatenate(blocks) if blocks else np.empty(self.places.shape)

    def cosines(self) -> NDArray[np.float64]:
        """Return the (Q, N (N - 1) / 2) cosines of each pair of texts, see `sgpu.spectrum.condense`."""
        n = self.places.shape[1]
        blocks = [condense(gram(self.vectors[block])) for block in self._blocks()]
        return np.concatenate(blocks) if blocks else np.empty((0, n * (n - 1) // 2))

    def _blocks(self) -> list[NDArray[np.intp]]:
        """Return the places of so many sets at a time that their vectors stay few."""
        step = max(1, VECTORS_AT_A_TIME // self.places.shape[1])
        return [self.places[start : start + step] for start in range(0, len(self.places), step)]


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
    embedded = EmbeddedSets.of(answers, n, encoder)
    spectra, cosines = embedded.spectra(), embedded.cosines()
    orders = drawn_orders([row["question_id"] for row in usable], n) if prefixes else None
    drawn = [] if orders is None else [embedded.drawn(orders, size).spectra() for size in prefixes]
    computed = iter(
        {
            "status": "ok",
            "n": n,
            "eigenvalues": spectra[index],
            "cosines": cosines[index].astype(np.float32),
            "prefixes": list(prefixes) or None,
            "prefix_eigenvalues": [of_size[index] for of_size in drawn] or None,
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
        by_size[int(n)] = SizedSpectra(rows, EmbeddedSets(vectors, read).spectra())
    return by_size
