"""Small models for tests of scoring: fitted to made spectra, over an encoder that needs no weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from sgpu.agreement import content_agreement
from sgpu.fitted.model import FittedModel
from sgpu.fitted.profile import AcceptanceRule, TrainingProfile
from sgpu.fitted.spectrum_classifier import SpectrumClassifier
from sgpu.gp import GPClassifier
from sgpu.gp.content import ContentClassifier
from sgpu.gp.heads import OtherSizes
from sgpu.gp.representation import sized_rows

RULE = AcceptanceRule(alpha=0.1, delta=0.05, cut=0.6, n_calibration=50)


class OneHotEncoder:
    """Every distinct text gets its own axis, so the eigenvalues are the counts of the texts."""

    dtype, dim, fingerprint = "float32", 4096, "f00d"
    axes: ClassVar[dict[str, int]] = {}

    def __init__(self, name: str = "one-hot") -> None:
        self.name = name
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls.append(list(texts))
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        rows[np.arange(len(texts)), [self.axes.setdefault(text, len(self.axes)) for text in texts]] = 1.0
        return rows


def load_one_hot(monkeypatch: pytest.MonkeyPatch, *modules: str) -> list[OneHotEncoder]:
    """Have one-hot encoders loaded whatever is asked for; return them in the order of loading."""
    loaded: list[OneHotEncoder] = []

    def load(name: str, *_: object, **__: object) -> OneHotEncoder:
        loaded.append(OneHotEncoder(name))
        return loaded[-1]

    for module in ("sgpu.fitted.spectrum_classifier", *modules):
        monkeypatch.setattr(f"{module}.load_encoder", load)
    return loaded


def counts(n: int, rows: int = 60) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Spectra of n answers of which some agree, and a label that is mostly 1 where they do."""
    rng = np.random.default_rng(n)
    agreeing = rng.integers(1, n + 1, size=rows)
    spectra = np.array([[k, *[1.0] * (n - k), *[0.0] * (k - 1)] for k in agreeing])
    return spectra, (rng.random(rows) < 0.02 + 0.96 * agreeing / n).astype(np.int64)


@cache
def classifier(n: int) -> GPClassifier:
    return GPClassifier(inducing=8).fit(*counts(n))


@cache
def any_size() -> GPClassifier:
    made = {n: counts(n) for n in (2, 3, 5, 8)}
    rows = sized_rows({n: spectra for n, (spectra, _) in made.items()}, 0, 1000)
    label = np.concatenate([made[int(n)][1] for n in np.unique(rows.size)])
    return GPClassifier(inducing=16).fit(rows.x, label)


@cache
def content() -> ContentClassifier:
    """Right where answers agree on words that the question does not bring; so is each answer of a set."""
    sets = [["Lima"] * 3, ["Lima", "Lima", "Cusco"], ["Lima", "Cusco", "Quito"]] * 10
    found = [content_agreement(texts, "Which city?") for texts in sets]
    votes: list[list[float | None]] = [[1, 1, 1], [1, 1, 0], [0, 0, 0]] * 10
    return ContentClassifier.fit(found, [1, 1, 0] * 10, votes, inducing=8)


def saved(
    folder: Path,
    *,
    n: int = 4,
    others: OtherSizes | None = None,
    encoder: str = "one-hot",
    rule: AcceptanceRule | None = None,
    embed: str = "full",
    reads_questions: bool = False,
) -> Path:
    """A model of ``n`` answers in ``folder``; by default with a size-free classifier."""
    spectra, label = counts(n)
    profile = TrainingProfile.of(list(spectra), label, [0.2, 0.8], [0, 1], seed=0, rule=rule)
    others = OtherSizes({}, any_size()) if others is None else others
    spectrum = SpectrumClassifier(classifier(n), encoder, "float32", n, "f00d", others)
    read = content() if reads_questions else None
    FittedModel(spectrum, {"study": "demo"}, embed, profile, read).save(folder)  # type: ignore[arg-type]
    return folder
