"""Rows of finished cells: spectra, labels, and the keys that say which question each row is of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sgpu.evaluation.inputs import Bools, Floats
from sgpu.hashing import sha256_hex
from sgpu.study.benchmark import Cell

Modality = Literal["text", "vision"]
KEYS = pl.Schema(
    {
        **dict.fromkeys(("model", "dataset", "question_id"), pl.String),
        "text_sha256": pl.String,  # of the question's words and its image: a duplicate under another id
        "row_sha256": pl.String,  # of question, references and image; null where a source did not say
    }
)


@dataclass(frozen=True)
class TransferRows:
    """R rows side by side; ``label`` is NaN where missing, a spectrum with a NaN is missing."""

    keys: pl.DataFrame  # the columns of KEYS
    spectra: Floats  # (R, N)
    label: Floats  # (R,)

    def __len__(self) -> int:
        return len(self.label)

    @property
    def cells(self) -> pl.Series:
        """(R,) the name of each row's cell."""
        return self.keys.select(pl.format("{}/{}", "model", "dataset")).to_series()

    @property
    def usable(self) -> Bools:
        """(R,) whether a row has a label and a spectrum."""
        return self.has_spectrum & ~np.isnan(self.label)

    @property
    def has_spectrum(self) -> Bools:
        """(R,)"""
        return np.asarray(~np.isnan(self.spectra).any(axis=1), dtype=np.bool_)

    def take(self, chosen: Bools | NDArray[np.int64]) -> TransferRows:
        """The rows of a mask (R,) or of row numbers, in that order."""
        index = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        return TransferRows(self.keys[index.tolist()], self.spectra[index], self.label[index])


@dataclass(frozen=True)
class SourceCell:
    """A finished cell: all its rows with their split, and what training-free methods say of them."""

    cell: Cell
    modality: Modality
    rows: TransferRows
    split: NDArray[np.str_]  # (R,): train, validation or test
    confidence: Mapping[str, Floats] = field(default_factory=dict)  # by method, (R,), NaN where missing
    notes: Sequence[str] = ()

    def part(self, *splits: str) -> TransferRows:
        """The rows of these splits."""
        return self.rows.take(np.isin(self.split, splits))


def key_frame(cell: Cell, questions: pl.DataFrame) -> pl.DataFrame:
    """The keys of R rows of one cell by their id, words, ``image_sha256`` and ``row_sha256``."""
    words = questions.select("question", "image_sha256").iter_rows()
    return questions.with_columns(
        pl.lit(cell.model).alias("model"),
        pl.lit(cell.dataset).alias("dataset"),
        pl.Series("text_sha256", [text_sha256(text, image) for text, image in words], dtype=pl.String),
    ).select(KEYS.names())


def text_sha256(question: str, image_sha256: str | None = None) -> str:
    """Equal for questions of the same words, whatever their case and spaces, about the same image."""
    words = " ".join(question.casefold().split())
    return sha256_hex(f"{words}\x1f{image_sha256 or ''}")


def joined(parts: Iterable[TransferRows]) -> TransferRows:
    """Rows of several cells under each other; at least one part."""
    members = list(parts)
    return TransferRows(
        pl.concat([part.keys for part in members]),
        np.concatenate([part.spectra for part in members]),
        np.concatenate([part.label for part in members]),
    )
