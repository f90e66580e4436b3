"""Classifiers of spectra with the encoder whose spectra they read: what a fitted model says by the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sgpu.encoders import load_encoder
from sgpu.encoders.base import Encoder
from sgpu.encoders.cards import ENCODERS, card_named
from sgpu.encoders.spectra import SizedSpectra
from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.gp import GPClassifier, Prediction
from sgpu.gp.heads import Head, OtherSizes
from sgpu.gp.persistence import DESCRIPTION
from sgpu.hashing import derived_seed, sha256_of_file


@dataclass(frozen=True)
class SpectrumClassifier:
    """A classifier of the spectra of ``n_answers`` (N) answers, and ``others`` for sets of other sizes.

    ``encoder``, ``encoder_dtype`` and ``encoder_fingerprint`` (sha256 of its weights) are those of the
    training features: another encoder or precision would shift every spectrum. Raises DataError for a
    classifier of another number of answers.
    """

    gp: GPClassifier
    encoder: str
    encoder_dtype: str
    n_answers: int
    encoder_fingerprint: str
    others: OtherSizes = field(default_factory=OtherSizes)

    def __post_init__(self) -> None:
        features = self.gp.fit_report.features
        if features != self.n_answers:
            raise DataError(
                f"n_answers is {self.n_answers}, but the classifier was fitted to {features} eigenvalues; "
                "they are the same number"
            )

    def head_of(self, n: int) -> Head:
        """Return the classifier that answers for sets of ``n`` answers; DataError if none can."""
        return self.others.head(n, self.gp, self.n_answers)

    def texts_read(self, texts: Sequence[str]) -> list[str]:
        """Return the texts of a set whose spectrum stands for it, as many as a classifier reads.

        Where that is fewer than there are, they are drawn by a seed that depends on the texts alone.
        """
        n = self.head_of(len(texts)).n
        if len(texts) == n:
            return list(texts)
        ordered = sorted(texts)
        drawn = np.random.default_rng(derived_seed(*ordered)).permutation(len(ordered))[:n]
        return [ordered[index] for index in sorted(drawn)]

    def predict(self, spectra: Mapping[int, SizedSpectra]) -> Prediction:
        """Predict spectra of `texts_read`, by their size; in the order of their rows."""
        parts = [self.head_of(n).predict(sized.spectra) for n, sized in spectra.items()]
        order = np.argsort(np.concatenate([sized.rows for sized in spectra.values()]))
        return Prediction(*(np.concatenate(column)[order] for column in zip(*parts, strict=True)))

    def encoder_here(self, device: str = "auto", fixed_batches: bool = False) -> Encoder:
        """Return the encoder, see `load_encoder`; IntegrityError if the weights here are others."""
        encoder = load_encoder(self.encoder, self.encoder_dtype, device, fixed_batches)
        if self.encoder_fingerprint != encoder.fingerprint:
            raise IntegrityError(
                f"the weights of encoder {self.encoder!r} here have sha256 {encoder.fingerprint}, "
                f"the model was fitted with {self.encoder_fingerprint}. Get that revision or fit again."
            )
        return encoder

    @cached_property
    def own_encoder(self) -> Encoder:
        """The encoder, loaded on first use."""
        return self.encoder_here()

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the classifiers; return what describes them."""
        self.gp.save(folder)
        return {
            "encoder": {
                "name": self.encoder,
                "dtype": self.encoder_dtype,
                "fingerprint": self.encoder_fingerprint,
                **({"plugins": plugins} if (plugins := ENCODERS.plugins(self.encoder)) else {}),
            },
            "n_answers": self.n_answers,
            "gp_sha256": sha256_of_file(folder / DESCRIPTION),
            "others": self.others.save(folder),
        }

    @classmethod
    def load(cls, source: Path, described: Mapping[str, Any], allow_encoder_path: bool) -> SpectrumClassifier:
        """Read what `save` wrote.

        Raises IntegrityError for changed files, UsageError for an encoder that is a folder of this machine,
        which would be opened, unless ``allow_encoder_path``; KeyError or TypeError for a description of
        something else.
        """
        gp = GPClassifier.load(source)
        if sha256_of_file(source / DESCRIPTION) != described["gp_sha256"]:
            raise IntegrityError(
                f"{source / DESCRIPTION} is not the file that the model was saved with. Restore the folder."
            )
        encoder = described["encoder"]
        _check_encoder(encoder["name"], encoder["fingerprint"], source, allow_encoder_path)
        if "plugins" in encoder:
            ENCODERS.same_plugins(encoder["plugins"], encoder["name"], str(source))
        return cls(
            gp,
            encoder["name"],
            encoder["dtype"],
            described["n_answers"],
            encoder["fingerprint"],
            OtherSizes.load(source, described["others"]),
        )


def _check_encoder(name: str, fingerprint: str | None, source: Path, allow_path: bool) -> None:
    if not isinstance(fingerprint, str):
        raise IntegrityError(
            f"{source} does not say which weights its encoder has (fingerprint: null). Fit it again, with "
            "`sgpu fit` or the study that made it."
        )
    if not allow_path and card_named(name) is None and Path(name).is_dir():
        raise UsageError(
            f"{source} names its encoder by the folder {name}. If you trust that folder, set "
            "allow_encoder_path to true."
        )
