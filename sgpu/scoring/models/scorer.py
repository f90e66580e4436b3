"""Response sets of any size in, probabilities out: the champion's, and the challenger's in its shadow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sgpu.encoders.base import Encoder
from sgpu.encoders.remembered import RememberingEncoder, VectorsInMemory
from sgpu.encoders.spectra import spectra_by_set_size
from sgpu.fitted.model import FittedModel
from sgpu.fitted.profile import TrainingProfile
from sgpu.logs.records import Reason
from sgpu.no_answer import describe, no_answer
from sgpu.scoring.models.embedding_cache import EmbeddingCache

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Why a set has no score; ``detail`` holds no text of an answer."""

    reason: Reason
    detail: str


@dataclass(frozen=True)
class Scored:
    """What the models say of Q sets; lists and arrays are (Q,), in the order of the sets.

    A set without a score has its reason in ``problems``, NaN as ``probability`` and ``std``, no ``spectrum``,
    ``head`` and ``unsafe`` None, ``n_used`` and ``n_distinct`` 0; all others have None in ``problems``.
    ``spectra`` are of the ``n_used`` answers that the head ``heads`` reads, ``n_distinct`` of them differ and
    ``top_share`` is the largest eigenvalue over their number. ``accepted`` is None without a rule for it.
    The ``shadow_`` columns are the challenger's, NaN and None where it has no score or is not there.
    """

    spectra: list[Floats]
    probability: Floats
    std: Floats
    unsafe: list[bool | None]
    heads: list[str | None]
    n_used: NDArray[np.int32]
    n_distinct: NDArray[np.int32]
    top_share: Floats
    accepted: list[bool | None]
    problems: list[Problem | None]
    shadow_probability: Floats
    shadow_std: Floats
    shadow_unsafe: list[bool | None]


class Scorer:
    """Holds the models and their encoders; loads each once.

    ``device`` is "auto", "cpu" or "cuda". Models with the same encoder and precision share it, and a text
    that both read is encoded once. ``cache`` keeps vectors beyond a call. Raises IntegrityError for changed
    files or another encoder than that of the training, UsageError as `FittedModel.load`.
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

    @property
    def profile(self) -> TrainingProfile | None:
        """What the champion was trained on; None for models that studies fit."""
        return self.champion.profile

    @property
    def encoder_name(self) -> str:
        return self.champion.encoder

    @property
    def encoder_sha256(self) -> str:
        """sha256 of the weights of the champion's encoder."""
        return self._encoder.fingerprint

    def score(self, sets: Sequence[Sequence[str]]) -> Scored:
        """Score Q sets of answers, each of any number; Q may be 0.

        A distinct text is encoded once for all sets, sizes and models. Sets larger than their head are read
        by a part that is drawn by a seed from the texts, and none is padded. Of a text longer than the
        encoder reads, the rest is cut off by its tokenizer (256 tokens for all-MiniLM-L6-v2). What is scored
        together changes no vector and no spectrum, on one machine with one number of threads.
        """
        try:
            own = _judged(self.champion, self._encoder, sets)
            shadow = _Judged.none(sets)
            if self.challenger is not None and self._shadow_encoder is not None:
                shadow = _judged(self.challenger, self._shadow_encoder, sets)
        finally:
            self._shared.forget()
        return Scored(
            spectra=own.spectra,
            probability=own.probability,
            std=own.std,
            unsafe=own.unsafe,
            heads=own.heads,
            n_used=np.array([len(spectrum) for spectrum in own.spectra], dtype=np.int32),
            n_distinct=own.n_distinct,
            top_share=np.array([s[0] / len(s) if len(s) else np.nan for s in own.spectra]),
            accepted=_accepted(self.champion, own),
            problems=own.problems,
            shadow_probability=shadow.probability,
            shadow_std=shadow.std,
            shadow_unsafe=shadow.unsafe,
        )


@dataclass
class _Judged:
    """What one model says of Q sets."""

    spectra: list[Floats]
    probability: Floats
    std: Floats
    unsafe: list[bool | None]
    heads: list[str | None]
    n_distinct: NDArray[np.int32]
    problems: list[Problem | None]

    @classmethod
    def none(cls, sets: Sequence[Sequence[str]]) -> _Judged:
        """No set has a score yet."""
        q = len(sets)
        return cls(
            spectra=[np.empty(0)] * q,
            probability=np.full(q, np.nan),
            std=np.full(q, np.nan),
            unsafe=[None] * q,
            heads=[None] * q,
            n_distinct=np.zeros(q, dtype=np.int32),
            problems=[None] * q,
        )


def _judged(model: FittedModel, encoder: Encoder, sets: Sequence[Sequence[str]]) -> _Judged:
    judged = _Judged.none(sets)
    judged.problems = [_problem(model, texts) for texts in sets]
    usable = [row for row, problem in enumerate(judged.problems) if problem is None]
    if not usable:
        return judged
    read = [model.set_read(sets[row]) for row in usable]
    by_size = spectra_by_set_size(read, encoder)
    prediction = model.of_spectra(by_size)
    judged.probability[usable], judged.std[usable] = prediction.probability, prediction.sd
    judged.n_distinct[usable] = [len(set(texts)) for texts in read]
    for row, flag in zip(usable, prediction.unsafe.tolist(), strict=True):
        judged.unsafe[row] = flag
    for n, sized in by_size.items():
        head = model.head_of(n).name
        for row, spectrum in zip(sized.rows.tolist(), sized.spectra, strict=True):
            judged.spectra[usable[row]], judged.heads[usable[row]] = spectrum, head
    return judged


def _problem(model: FittedModel, texts: Sequence[str]) -> Problem | None:
    """Return why a set has no score, so that it does not cost the others of its batch."""
    if problem := model.problem_of(texts):
        return Problem(Reason(problem.kind), problem.detail)
    reason = no_answer(texts)
    return None if reason is None else Problem(Reason(reason), describe(reason, len(texts)))


def _accepted(model: FittedModel, judged: _Judged) -> list[bool | None]:
    rule = None if model.profile is None else model.profile.rule
    if rule is None:
        return [None] * len(judged.problems)
    accepted = rule.accepts(judged.probability).tolist()
    return [None if problem else yes for problem, yes in zip(judged.problems, accepted, strict=True)]


def _encoder(model: FittedModel, device: str, cache: EmbeddingCache | None) -> Encoder:
    encoder = model.encoder_here(device, fixed_batches=True)
    return encoder if cache is None else RememberingEncoder(encoder, cache)


def _named(model: FittedModel) -> tuple[str, str, str]:
    return model.encoder, model.encoder_dtype, model.encoder_fingerprint
