"""Response sets of any size in, probabilities out: the champion's, and the challenger's in its shadow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sgpu.encoders.base import Encoder
from sgpu.encoders.remembered import RememberingEncoder, VectorsInMemory
from sgpu.encoders.spectra import embedded_texts, spectra_by_set_size
from sgpu.fitted.model import FittedModel
from sgpu.fitted.result import Result, check_questions
from sgpu.logs.records import Reason
from sgpu.no_answer import describe, no_answer
from sgpu.scoring.models.embedding_cache import EmbeddingCache
from sgpu.scoring.tables import SAID

Row = dict[str, Any]
SHADOWED = ("probability", "std", "unsafe")
AGREEMENT = "agreement"  # head of sets that are read by it


class Scorer:
    """Holds the models and their encoders; loads each once.

    ``device`` is "auto", "cpu" or "cuda". Models with the same encoder and precision share it, and a text
    that both read is encoded once. ``cache`` keeps vectors beyond a call. Raises IntegrityError for changed
    files or another encoder than that of the training, UsageError as `FittedModel.load` and for
    a model that reads no spectra.
    """

    def __init__(
        self,
        champion: Path,
        challenger: Path | None = None,
        device: str = "auto",
        cache: EmbeddingCache | None = None,
        allow_encoder_path: bool = False,
    ) -> None:
        self.champion = FittedModel.load(champion, allow_encoder_path)
        self.challenger = None if challenger is None else FittedModel.load(challenger, allow_encoder_path)
        self._encoder: Encoder = _encoder(self.champion, device, cache)
        self._shadow_encoder: Encoder | None = None
        self._shared = VectorsInMemory()
        if self.challenger is None:
            return
        if _named(self.challenger) == _named(self.champion):
            self._encoder = self._shadow_encoder = RememberingEncoder(self._encoder, self._shared)
        else:
            self._shadow_encoder = _encoder(self.challenger, device, cache)

    def score(self, sets: Sequence[Sequence[str]], questions: Sequence[str | None] | None = None) -> pa.Table:
        """Score Q sets of answers, each of any number; Q may be 0. Returns a row of `SAID` for each.

        A set whose question is known is read by agreement on content if the model has classifiers of it and
        `FittedModel.why_no_agreement` says nothing against it. Such a set is not encoded and has no spectrum.

        A set without a score has its reason in ``refusal`` and ``why``, which hold no text of an answer, and
        nothing else. ``shadow_`` columns are the challenger's, null where it has no score or is not there.

        A distinct text is encoded once for all sets, sizes and models. Sets larger than their head are read
        by a part that is drawn by a seed from the texts, and none is padded. Of a text longer than the
        encoder reads, the rest is cut off by its tokenizer (256 tokens for all-MiniLM-L6-v2). What is scored
        together changes no vector and no spectrum, on one machine with one number of threads.
        """
        asked = check_questions(questions, len(sets))
        rows, shadow = list[Row](), list[Row]()
        try:
            rows = _judge(self.champion, self._encoder, sets, asked)
            if self.challenger is not None and self._shadow_encoder is not None:
                shadow = _judge(self.challenger, self._shadow_encoder, sets, asked)
        finally:
            self._shared.forget()
        encoder = {
            "encoder": self.champion.require_spectrum().encoder,
            "encoder_sha256": self._encoder.fingerprint,
        }
        for row, other in zip_longest(rows, shadow, fillvalue=Row()):
            if "refusal" not in row:
                row |= encoder | {f"shadow_{name}": other.get(name) for name in SHADOWED}
        return pa.Table.from_pylist(rows, schema=SAID)


def _judge(
    model: FittedModel, encoder: Encoder, sets: Sequence[Sequence[str]], questions: Sequence[str | None]
) -> list[Row]:
    """Return what one model says of each set."""
    # What is not calibrated gives no probability by agreement.
    asked = questions if model.calibrated else [None] * len(sets)
    rows = [_refusal(model, texts, question) for texts, question in zip(sets, asked, strict=True)]
    usable = [place for place, row in enumerate(rows) if not row]
    agreeing = [place for place in usable if model.why_no_agreement(sets[place], asked[place]) is None]
    spectral = sorted(set(usable) - set(agreeing))
    if agreeing:
        _fill(rows, agreeing, _judge_by_agreement(model, sets, asked, agreeing))
    if spectral:
        _fill(rows, spectral, _judge_by_spectrum(model, encoder, [sets[place] for place in spectral]))
    if usable and model.profile is not None and model.profile.rule is not None:
        accepted = model.profile.rule.accepts(np.array([rows[place]["probability"] for place in usable]))
        _fill(rows, usable, [{"accepted": one} for one in accepted])
    return rows


def _fill(rows: Sequence[Row], places: Sequence[int], found: Sequence[Row]) -> None:
    for place, values in zip(places, found, strict=True):
        rows[place].update(values)


def _judge_by_agreement(
    model: FittedModel,
    sets: Sequence[Sequence[str]],
    questions: Sequence[str | None],
    places: Sequence[int],
) -> list[Row]:
    """Return what the model says by agreement of the sets at these places."""
    result = Result.unknown([None] * len(sets))
    model.fill_agreement(result, places, sets, questions)
    return [
        {
            "probability": result.probability[place],
            "std": result.sd[place],
            "unsafe": result.unsafe[place],
            "answer": result.answer[place],
            "p_answer": None if np.isnan(result.p_answer[place]) else result.p_answer[place],
            "head": AGREEMENT,
            "n_used": len(sets[place]),
            "n_distinct": len(set(embedded_texts(sets[place], model.embed))),
        }
        for place in places
    ]


def _judge_by_spectrum(model: FittedModel, encoder: Encoder, sets: Sequence[Sequence[str]]) -> list[Row]:
    """Return what the model says of sets by their spectra."""
    read = [model.set_read(texts) for texts in sets]
    by_size = spectra_by_set_size(read, encoder)
    spectrum = model.require_spectrum()
    prediction = spectrum.predict(by_size)
    rows: list[Row] = [
        {
            "probability": prediction.probability[place],
            "std": prediction.sd[place],
            "unsafe": prediction.unsafe[place],
            "n_distinct": len(set(texts)),
        }
        for place, texts in enumerate(read)
    ]
    for n, sized in by_size.items():
        for place, values in zip(sized.rows.tolist(), sized.spectra, strict=True):
            rows[place] |= {
                "head": spectrum.head_of(n).name,
                "spectrum": values,
                "n_used": len(values),
                "top_eigenvalue_share": values[0] / len(values),
            }
    return rows


def _refusal(model: FittedModel, texts: Sequence[str], question: str | None) -> Row:
    """Return why a set has no score, so that it does not cost the others of its batch; else nothing."""
    if problem := model.problem_of(texts, question):
        return {"refusal": str(Reason(problem.kind)), "why": problem.detail}
    reason = no_answer(texts)
    return {} if reason is None else {"refusal": str(Reason(reason)), "why": describe(reason, len(texts))}


def _encoder(model: FittedModel, device: str, cache: EmbeddingCache | None) -> Encoder:
    encoder = model.require_spectrum().encoder_here(device, fixed_batches=True)
    return encoder if cache is None else RememberingEncoder(encoder, cache)


def _named(model: FittedModel) -> tuple[str, str, str]:
    spectrum = model.require_spectrum()
    return spectrum.encoder, spectrum.encoder_dtype, spectrum.encoder_fingerprint
